// Row ops: against double-precision references, and bit-equal over instruction sets, threads and row counts.
#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/row_test_data.h"

namespace baton::kernels {
namespace {

using tensor::Isa;
using test::expect_one_result;
using test::random_floats;
using test::same_bits;

constexpr int64_t kRows = 7;

class Features : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Features, testing::Values(1, 15, 16, 17, 100, 576, 4096));

TEST_P(Features, RmsNorm) {
  const int64_t n = GetParam();
  const auto x = random_floats(kRows * n, 1, 3), w = random_floats(n, 2);
  const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> out(rows * n);
    rms_norm(x.data() + first * n, n, w.data(), 1e-5f, out.data(), n, rows, n, isa, pool);
    return out;
  });
  for (int64_t r = 0; r < kRows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[r * n + i]) * x[r * n + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (int64_t i = 0; i < n; ++i) {
      const double want = x[r * n + i] * scale * w[i];
      EXPECT_NEAR(y[r * n + i], want, 1e-6 * std::abs(want) + 1e-30);
    }
  }
}

// A mean far from zero: the variance is taken of what is left of the row, not as a difference of squares.
TEST_P(Features, LayerNorm) {
  const int64_t n = GetParam();
  const auto x = random_floats(kRows * n, 9, 3, 20), w = random_floats(n, 10), bias = random_floats(n, 11);
  const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> out(rows * n);
    layer_norm(x.data() + first * n, n, w.data(), bias.data(), 1e-6f, out.data(), n, rows, n, isa, pool);
    return out;
  });
  for (int64_t r = 0; r < kRows; ++r) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) mean += x[r * n + i] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (x[r * n + i] - mean) * (x[r * n + i] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(y[r * n + i], (x[r * n + i] - mean) * scale * w[i] + bias[i], 2e-5 * (1 + std::abs(w[i])));
    }
  }
}

TEST_P(Features, AddRmsNormIsAddThenRmsNorm) {
  const int64_t n = GetParam();
  const auto x = random_floats(kRows * n, 3), residual = random_floats(kRows * n, 4), w = random_floats(n, 5);
  const auto fused = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> sum(residual.begin() + first * n, residual.begin() + (first + rows) * n), y(rows * n);
    add_rms_norm(sum.data(), x.data() + first * n, w.data(), 1e-6f, y.data(), rows, n, isa, pool);
    for (int64_t i = 0; i < rows * n; ++i) EXPECT_EQ(sum[i], residual[first * n + i] + x[first * n + i]);
    return y;
  });
  const auto apart = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> sum(residual.begin() + first * n, residual.begin() + (first + rows) * n), y(rows * n);
    add(x.data() + first * n, n, sum.data(), n, rows, n, isa, pool);
    rms_norm(sum.data(), n, w.data(), 1e-6f, y.data(), n, rows, n, isa, pool);
    return y;
  });
  EXPECT_TRUE(same_bits(fused, apart));
}

TEST_P(Features, SiluMul) {
  const int64_t n = GetParam();
  auto gate = random_floats(kRows * n, 6, 6);
  const auto up = random_floats(kRows * n, 7);
  gate[0] = -1000;
  gate[n] = 1000;
  const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> out(rows * n);
    silu_mul(gate.data() + first * n, n, up.data() + first * n, n, out.data(), n, rows, n, isa, pool);
    return out;
  });
  for (int64_t i = 0; i < kRows * n; ++i) {
    const double want = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    EXPECT_NEAR(y[i], want, 5e-7 * std::abs(want) + 1e-35);
  }
}

struct RopeCase {
  int heads, head_dim, rope_dim;
};
class Rope : public testing::TestWithParam<RopeCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Rope,
                         testing::Values(RopeCase{3, 64, 64}, RopeCase{2, 128, 64}, RopeCase{1, 80, 80},
                                         RopeCase{5, 6, 4}, RopeCase{2, 96, 96}));

TEST_P(Rope, RotatesEachPairByItsPosition) {
  const auto [heads, head_dim, rope_dim] = GetParam();
  const int64_t features = heads * head_dim;
  constexpr int kPositions = 40;
  const int pairs = rope_dim / 2;
  std::vector<float> table(kPositions * rope_dim);
  for (int p = 0; p < kPositions; ++p) {
    for (int i = 0; i < pairs; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / rope_dim);
      table[p * rope_dim + i] = static_cast<float>(std::cos(angle));
      table[p * rope_dim + pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
  const auto x = random_floats(kRows * features, 8);
  const std::vector<int32_t> positions = {0, 1, 39, 7, 8, 9, 3};
  for (RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
    const auto y = expect_one_result(kRows, features, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
      std::vector<float> out(x.begin() + first * features, x.begin() + (first + rows) * features);
      apply_rope(out.data(), features, heads, head_dim, rope_dim, positions.data() + first, table.data(), pairing, rows,
                 isa, pool);
      return out;
    });
    for (int64_t r = 0; r < kRows; ++r) {
      for (int h = 0; h < heads; ++h) {
        const float* in = x.data() + r * features + h * head_dim;
        const float* out = y.data() + r * features + h * head_dim;
        for (int i = 0; i < pairs; ++i) {
          const int a = pairing == RopePairing::kHalfSplit ? i : 2 * i;
          const int b = pairing == RopePairing::kHalfSplit ? i + pairs : 2 * i + 1;
          const double c = table[positions[r] * rope_dim + i], s = table[positions[r] * rope_dim + pairs + i];
          EXPECT_NEAR(out[a], in[a] * c - in[b] * s, 1e-6);
          EXPECT_NEAR(out[b], in[b] * c + in[a] * s, 1e-6);
        }
        for (int i = rope_dim; i < head_dim; ++i) EXPECT_EQ(out[i], in[i]);
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels
