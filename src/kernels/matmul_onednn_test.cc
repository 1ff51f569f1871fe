// oneDNN on and off: the same bits for every number of rows, so that it may serve bf16 at all.
#include "kernels/matmul_onednn.h"

#include "kernels/matmul_scaled_tiles.h"
#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

MatmulSpec bf16_spec(int64_t outputs, int64_t features, bool onednn) {
  return {.out_features = outputs,
          .in_features = features,
          .dtype = DType::kBF16,
          .isa = Isa::kAvx512,
          .allow_onednn = onednn};
}

class Onednn : public testing::Test {
 protected:
  void SetUp() override {
    if (tensor::detect_isa() != Isa::kAvx512) GTEST_SKIP() << "needs AVX-512 BF16";
  }
};

TEST_F(Onednn, GivesTheBitsOfOurOwnKernel) {
  Random random(8);
  struct Case {
    int64_t outputs, features;
    std::vector<int64_t> rows;
  };
  for (const auto& c :
       {Case{576, 576, {1, 63, 64, 65, 128, 300, 512}}, Case{1536, 576, {64, 100}}, Case{192, 1536, {64, 192}},
        Case{50, 32, {64}}, Case{330, 4096, {64, 129}}, Case{64, 12288, {64}}, Case{64, 1024, {64}},
        Case{64, 1056, {64}}, Case{200, 2048, {64, 200}}}) {
    const auto bytes = random_weights(random, DType::kBF16, c.outputs * c.features);
    const auto with = pack(bf16_spec(c.outputs, c.features, true), bytes);
    const auto without = pack(bf16_spec(c.outputs, c.features, false), bytes);
    EXPECT_TRUE(onednn_can_serve(with.spec())) << "oneDNN offers no brg: kernel for K = " << c.features;
    EXPECT_EQ(with.uses_onednn(), !bf16_fma_pays());
    EXPECT_FALSE(without.uses_onednn());
    const auto bias = random_floats(random, c.outputs);
    for (int threads : {1, 2}) {
      ComputePool pool({.threads = threads, .spin_us = 0});
      for (int64_t rows : c.rows) {
        const auto x = random_floats(random, rows * c.features);
        ASSERT_TRUE(
            same_bits(multiply(without, x, rows, pool, bias.data()), multiply(with, x, rows, pool, bias.data())))
            << rows << " x " << c.outputs << " x " << c.features;
      }
    }
  }
}

// Values that cancel, overflow and vanish: equality must not rest on kind numbers.
TEST_F(Onednn, GivesTheBitsOfOurOwnKernelForWildValues) {
  Random random(9);
  const int64_t outputs = 128, features = 640, rows = 64;
  auto bytes = random_weights(random, DType::kBF16, outputs * features);
  for (size_t i = 0; i < bytes.size(); i += 2) {
    // Any sign and mantissa, exponents from 2^-126 to 2^60.
    const auto bits = static_cast<uint16_t>((random() & 0x807fu) | (1 + random() % 186) << 7);
    std::memcpy(bytes.data() + i, &bits, 2);
  }
  auto x = random_floats(random, rows * features);
  for (auto& value : x) value = std::ldexp(value, static_cast<int>(random() % 200) - 140);
  ComputePool pool({.threads = 1});
  EXPECT_TRUE(same_bits(multiply(pack(bf16_spec(outputs, features, false), bytes), x, rows, pool),
                        multiply(pack(bf16_spec(outputs, features, true), bytes), x, rows, pool)));
}

TEST_F(Onednn, IsRefusedWhereItCannotKeepTheContract) {
  EXPECT_FALSE(onednn_can_serve(bf16_spec(64, 48, true))) << "K is padded in our layout";
  auto tree = bf16_spec(64, 64, true);
  tree.k_order = KOrder::kTree;
  tree.tree_unit = 64;
  EXPECT_FALSE(onednn_can_serve(tree));
  auto avx2 = bf16_spec(64, 64, true);
  avx2.isa = Isa::kAvx2;
  EXPECT_FALSE(onednn_can_serve(avx2));
}

}  // namespace
}  // namespace baton::kernels::test
