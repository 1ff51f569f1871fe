// Weighted sums: the order of the tree bit for bit, attention residuals against their formula in double, and one result
// over instruction sets, threads and row counts.
#include "kernels/mixing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/row_test_data.h"

namespace baton::kernels {
namespace {

using tensor::Isa;
using test::expect_one_result;
using test::random_floats;
using test::same_bits;

constexpr int64_t kRows = 5;

// The tree as mixing.h states it, level by level.
float tree(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      next.push_back(i + 1 < level.size() ? level[i] + level[i + 1] : level[i]);
    }
    level = next;
  }
  return level[0];
}

class Combine : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Slots, Combine, testing::Values(1, 2, 3, 5, 6, 7, 8, 11, 16, 63, 64));

TEST_P(Combine, AddsSlotsByTheTreeThenTheSharedExpert) {
  const int slots = GetParam();
  for (int64_t n : {1, 16, 40, 2100}) {
    const auto outputs = random_floats(kRows * slots * n, 1), weights = random_floats(kRows * slots, 2);
    const auto shared = random_floats(kRows * n, 3);
    std::vector<int32_t> places(kRows * slots);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), std::mt19937(4));
    for (bool with_shared : {false, true}) {
      const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
        std::vector<float> out(rows * n);
        combine_slots({.outputs = outputs.data(),
                       .outputs_stride = n,
                       .places = places.data() + first * slots,
                       .weights = weights.data() + first * slots,
                       .slots = slots,
                       .shared = with_shared ? shared.data() + first * n : nullptr,
                       .shared_stride = n,
                       .y = out.data(),
                       .y_stride = n,
                       .rows = rows,
                       .features = n,
                       .isa = isa},
                      pool);
        return out;
      });
      std::vector<float> want(kRows * n);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          std::vector<float> leaves(slots);
          for (int s = 0; s < slots; ++s) {
            leaves[s] = weights[r * slots + s] * outputs[places[r * slots + s] * n + i];
          }
          want[r * n + i] = tree(leaves) + (with_shared ? shared[r * n + i] : 0);
        }
      }
      EXPECT_TRUE(same_bits(y, want)) << "features " << n << " shared " << with_shared;
    }
  }
}

struct MixCase {
  int bank;
  bool last;
  int64_t features;
};
class Mix : public testing::TestWithParam<MixCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Mix,
                         testing::Values(MixCase{1, false, 16}, MixCase{0, true, 7}, MixCase{1, true, 33},
                                         MixCase{8, true, 7168}, MixCase{8, false, 100}, MixCase{63, true, 24}));

TEST_P(Mix, IsASoftmaxOverSources) {
  const int bank_count = GetParam().bank;
  const bool with_last = GetParam().last;
  const int64_t n = GetParam().features;
  const int64_t bank_stride = (bank_count + 2) * n;
  const auto bank = random_floats(kRows * bank_stride, 1, 2), last = random_floats(kRows * n, 2, 3);
  const auto weight = random_floats(n, 3, 2.0f / std::sqrt(static_cast<float>(n)));
  const auto y = expect_one_result(kRows, n, [&](Isa isa, ComputePool& pool, int64_t first, int64_t rows) {
    std::vector<float> out(rows * n);
    mix_sources({.bank = bank.data() + first * bank_stride,
                 .bank_row_stride = bank_stride,
                 .bank_count = bank_count,
                 .last = with_last ? last.data() + first * n : nullptr,
                 .last_stride = n,
                 .weight = weight.data(),
                 .eps = 1e-5f,
                 .y = out.data(),
                 .y_stride = n,
                 .rows = rows,
                 .features = n,
                 .isa = isa},
                pool);
    return out;
  });
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<const float*> sources;
    for (int j = 0; j < bank_count; ++j) sources.push_back(bank.data() + r * bank_stride + j * n);
    if (with_last) sources.push_back(last.data() + r * n);
    std::vector<double> a;
    double sum = 0;
    for (const float* s : sources) {
      double squares = 0, e = 0;
      for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(s[i]) * s[i];
      for (int64_t i = 0; i < n; ++i) {
        e += s[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * static_cast<double>(weight[i]);
      }
      a.push_back(std::exp(e));
      sum += a.back();
    }
    for (int64_t i = 0; i < n; ++i) {
      double want = 0;
      for (size_t j = 0; j < sources.size(); ++j) want += a[j] / sum * sources[j][i];
      EXPECT_NEAR(y[r * n + i], want, 5e-6);
    }
  }
}

}  // namespace
}  // namespace baton::kernels
