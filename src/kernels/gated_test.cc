// Gated rows: against their formulas in double, and bit-equal over instruction sets, threads and row counts.
#include "kernels/gated.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/row_test_data.h"

namespace baton::kernels {
namespace {

using tensor::Isa;
using test::expect_one_result;
using test::random_floats;

constexpr int64_t kRows = 5;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class Gated : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Gated, testing::Values(1, 15, 16, 33, 128, 2100));

TEST_P(Gated, NormsEachHeadAlone) {
  const int dim = GetParam(), heads = 3;
  const int64_t n = int64_t{heads} * dim, gate_stride = n + 7;
  const auto x = random_floats(kRows * n, 1), gate = random_floats(kRows * gate_stride, 2, 3);
  const auto w = random_floats(dim, 3);
  const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> out(x.begin() + first * n, x.begin() + (first + rows) * n);  // in place
    gated_rms_norm(out.data(), n, w.data(), 1e-5f, gate.data() + first * gate_stride, gate_stride, out.data(), n, rows,
                   heads, dim, isa, pool);
    return out;
  });
  for (int64_t at = 0; at < kRows * n; at += dim) {
    double squares = 0;
    for (int i = 0; i < dim; ++i) squares += static_cast<double>(x[at + i]) * x[at + i];
    const double scale = 1 / std::sqrt(squares / dim + 1e-5);
    for (int i = 0; i < dim; ++i) {
      const double g = gate[at / n * gate_stride + at % n + i];
      const double want = x[at + i] * scale * w[i] * sigmoid(g);
      EXPECT_NEAR(y[at + i], want, 1e-6 * std::abs(want) + 1e-30);
    }
  }
}

TEST_P(Gated, SituBendsBothSides) {
  const int64_t n = GetParam();
  auto gate = random_floats(kRows * n, 4, 6), up = random_floats(kRows * n, 5, 30);
  gate[0] = -1000;
  gate[n] = 1000;
  up[2 * n] = 1e30f;
  gate[3 * n] = 1e-20f;
  const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> out(rows * n);
    situ_mul(gate.data() + first * n, n, up.data() + first * n, n, {.beta = 4, .linear_beta = 25}, out.data(), n, rows,
             n, isa, pool);
    return out;
  });
  for (int64_t i = 0; i < kRows * n; ++i) {
    const double g = gate[i], u = up[i];
    const double want = 4 * std::tanh(g / 4) * sigmoid(g) * 25 * std::tanh(u / 25);
    EXPECT_NEAR(y[i], want, 1e-6 * std::abs(want) + 1e-35) << g << " " << u;
  }
}

TEST_P(Gated, SigmoidScales) {
  const int64_t n = GetParam();
  const auto gate = random_floats(kRows * n, 6, 6), x = random_floats(kRows * n, 7);
  const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> out(x.begin() + first * n, x.begin() + (first + rows) * n);
    sigmoid_mul(gate.data() + first * n, n, out.data(), n, rows, n, isa, pool);
    return out;
  });
  for (int64_t i = 0; i < kRows * n; ++i) {
    const double want = x[i] * sigmoid(gate[i]);
    EXPECT_NEAR(y[i], want, 5e-7 * std::abs(want) + 1e-35);
  }
}

}  // namespace
}  // namespace baton::kernels
