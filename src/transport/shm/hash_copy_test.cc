#include "transport/shm/hash_copy.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <random>
#include <vector>

namespace baton::transport {
namespace {

class HashCopyTest : public testing::TestWithParam<tensor::Isa> {};

TEST_P(HashCopyTest, StoresTheBytesAndHashesThemAsTheLibraryDoes) {
  if (GetParam() > tensor::detect_isa()) GTEST_SKIP() << "this machine has no " << tensor::isa_name(GetParam());
  const HashCopy hash_copy = hash_copy_for(GetParam());
  std::mt19937 random(1);
  std::vector<std::byte> source(1 << 16);
  for (auto& b : source) b = static_cast<std::byte>(random());
  for (size_t bytes :
       {0, 1, 31, 32, 63, 64, 65, 128, 192, 200, 448, 512, 576, 640, 1024, 1088, 2048, 4095, 4096, 4097, 12345}) {
    for (size_t shift : {0, 1, 32, 64}) {
      alignas(64) static std::byte target[1 << 16];
      std::memset(target, 0xEE, sizeof(target));
      const size_t second = 32768;
      const CopyRun runs[] = {{source.data() + shift, target + shift, bytes},
                              {source.data() + 20000, target + second, bytes}};
      const uint64_t hash = hash_copy(runs, nullptr);
      store_fence();
      std::vector<std::byte> joined(source.begin() + shift, source.begin() + shift + bytes);
      joined.insert(joined.end(), source.begin() + 20000, source.begin() + 20000 + bytes);
      EXPECT_EQ(hash, XXH3_64bits(joined.data(), joined.size())) << bytes << " at " << shift;
      if (bytes == 0) continue;
      EXPECT_EQ(std::memcmp(target + shift, joined.data(), bytes), 0);
      EXPECT_EQ(std::memcmp(target + second, joined.data() + bytes, bytes), 0);
      EXPECT_EQ(target[shift + bytes], std::byte{0xEE});
      EXPECT_EQ(target[second + bytes], std::byte{0xEE});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, HashCopyTest,
                         testing::Values(tensor::Isa::kPortable, tensor::Isa::kAvx2, tensor::Isa::kAvx512),
                         [](const auto& info) { return std::string(tensor::isa_name(info.param)); });

}  // namespace
}  // namespace baton::transport
