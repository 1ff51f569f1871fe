#include "kv/seal_table.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tensor/buffer.h"

namespace baton::kv {
namespace {

const PagedGeometry kGeometry = uniform_geometry({.layers = 2, .kv_heads = 3, .head_dim = 8, .block_size = 4});
constexpr int64_t kBlocks = 5;

struct Fixture {
  tensor::Buffer arena = *tensor::Buffer::allocate(kGeometry.block_bytes() * kBlocks);
  tensor::Buffer memory = *tensor::Buffer::allocate(SealReader::table_bytes(kGeometry.units_per_block(), kBlocks));
  SealTable table = *SealTable::over({memory.data(), memory.size()}, kGeometry, {arena.data(), arena.size()});
  std::vector<uint64_t> checksums = std::vector<uint64_t>(kGeometry.units_per_block());

  Fixture() {
    std::mt19937 random(3);
    for (size_t i = 0; i < arena.size(); ++i) arena.data()[i] = static_cast<std::byte>(random());
  }
};

TEST(SealTable, ChecksumsAreXxh3OfKeysThenValuesOfTheSealedTokens) {
  Fixture f;
  const Seal seal = f.table.seal(2, 3);
  ASSERT_EQ(*f.table.reader().read(2, f.checksums), seal);
  EXPECT_EQ(seal.tokens, 3);
  for (int layer = 0; layer < 2; ++layer) {
    for (int head = 0; head < 3; ++head) {
      // bf16: 3 tokens of 8 values are 48 bytes; a head has 64, keys or values of a layer 192, a layer 384, a block
      // 768.
      const std::byte* keys = f.arena.data() + 2 * 768 + layer * 384 + head * 64;
      std::vector<std::byte> bytes(keys, keys + 48);
      bytes.insert(bytes.end(), keys + 192, keys + 192 + 48);
      EXPECT_EQ(f.checksums[layer * 3 + head], XXH3_64bits(bytes.data(), bytes.size()));
    }
  }
}

TEST(SealTable, BytesBeyondTheSealedTokensAreNotCovered) {
  Fixture f;
  f.table.seal(0, 3);
  ASSERT_TRUE(f.table.reader().read(0, f.checksums));
  f.arena.data()[kGeometry.unit_offset(0, 0, 0) + 48] ^= std::byte{1};  // token 3
  EXPECT_EQ(unit_checksum(kGeometry, f.arena.data(), 0, 0, 3), f.checksums[0]);
  f.arena.data()[kGeometry.unit_offset(0, 0, 0) + 47] ^= std::byte{1};  // token 2
  EXPECT_NE(unit_checksum(kGeometry, f.arena.data(), 0, 0, 3), f.checksums[0]);
}

// A latent of 656 bytes a token, index keys of 130, and keys and values of two heads: blocks of 3 tokens.
TEST(SealTable, EntriesOfEveryKindHaveTheirUnits) {
  const PagedGeometry mixed(3, {{.kind = "latent", .dtype = "f8e4m3", .token_bytes = 656},
                                {.kind = "index_keys", .dtype = "i8", .token_bytes = 130},
                                {.kind = "keys_values", .dtype = "bf16", .units = 2, .parts = 2, .token_bytes = 16}});
  // 3 * 656 = 1968, which ends at 1984; 390 more end at 2432; 192 end at 2624.
  EXPECT_EQ(mixed.entry_offset(1), 1984);
  EXPECT_EQ(mixed.entry_offset(2), 2432);
  EXPECT_EQ(mixed.block_bytes(), 2624);
  EXPECT_EQ(mixed.units_per_block(), 4);
  EXPECT_EQ(mixed.sealed_bytes(2), 2 * (656 + 130 + 64));
  auto arena = *tensor::Buffer::allocate(2624 * 2);
  auto memory = *tensor::Buffer::allocate(SealReader::table_bytes(4, 2));
  std::mt19937 random(4);
  for (size_t i = 0; i < arena.size(); ++i) arena.data()[i] = static_cast<std::byte>(random());
  auto table = *SealTable::over({memory.data(), memory.size()}, mixed, {arena.data(), arena.size()});
  table.seal(1, 2);
  std::vector<uint64_t> checksums(4);
  ASSERT_TRUE(table.reader().read(1, checksums));
  const std::byte* block = arena.data() + 2624;
  EXPECT_EQ(checksums[0], XXH3_64bits(block, 2 * 656));
  EXPECT_EQ(checksums[1], XXH3_64bits(block + 1984, 2 * 130));
  std::vector<std::byte> second_head(block + 2432 + 48, block + 2432 + 48 + 32);
  second_head.insert(second_head.end(), block + 2432 + 96 + 48, block + 2432 + 96 + 48 + 32);
  EXPECT_EQ(checksums[3], XXH3_64bits(second_head.data(), second_head.size()));
}

TEST(SealTable, AZeroedTableOffersNothing) {
  Fixture f;
  EXPECT_EQ(f.table.reader().read(0, f.checksums).error().code(), Code::kFailedPrecondition);
}

TEST(SealTable, SealingTwiceKeepsTheGeneration) {
  Fixture f;
  const Seal first = f.table.seal(1, 4);
  EXPECT_EQ(f.table.seal(1, 4), first);
  EXPECT_GT(f.table.seal(1, 2).generation, first.generation);
}

TEST(SealTable, AReusedBlockHasAnotherGenerationEvenWithTheSameBytes) {
  Fixture f;
  const Seal first = f.table.seal(1, 4);
  EXPECT_TRUE(f.table.reader().unchanged(1, first.generation));
  f.table.reopen(1);
  EXPECT_FALSE(f.table.reader().unchanged(1, first.generation));
  EXPECT_FALSE(f.table.reader().read(1, f.checksums));
  f.table.reopen(1);
  const Seal second = f.table.seal(1, 4);
  EXPECT_GT(second.generation, first.generation);
  EXPECT_FALSE(f.table.reader().unchanged(1, first.generation));
}

TEST(SealTable, MemoryThatIsTooSmallOrCrookedIsRefused) {
  tensor::Buffer memory = *tensor::Buffer::allocate(1024);
  EXPECT_FALSE(SealReader::over({memory.data(), 100}, 6, 5));
  EXPECT_FALSE(SealReader::over({memory.data(), 1024}, 6, INT64_MAX));
  EXPECT_FALSE(SealReader::over({memory.data() + 8, 512}, 1, 1));
  EXPECT_TRUE(SealReader::over({memory.data(), 1024}, 6, 5));
}

// A reader that copies while the writer reopens, rewrites and reseals never accepts a mixture.
TEST(SealTable, AReaderNeverAcceptsATornSeal) {
  Fixture f;
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 0; i < 20000; ++i) {
      f.table.reopen(0);
      f.table.seal(0, 1 + i % 4);
    }
    stop = true;
  });
  std::vector<std::vector<uint64_t>> good(5, std::vector<uint64_t>(6));
  for (int tokens = 1; tokens <= 4; ++tokens) {
    for (int u = 0; u < 6; ++u) good[tokens][u] = unit_checksum(kGeometry, f.arena.data(), u / 3, u % 3, tokens);
  }
  while (!stop) {
    const auto seal = f.table.reader().read(0, f.checksums);
    if (!seal) continue;
    ASSERT_EQ(f.checksums, good[seal->tokens]);
  }
  writer.join();
  const auto last = f.table.reader().read(0, f.checksums);
  ASSERT_TRUE(last);
  EXPECT_EQ(f.checksums, good[last->tokens]);
}

}  // namespace
}  // namespace baton::kv
