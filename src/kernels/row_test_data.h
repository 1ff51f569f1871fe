// What the tests of row ops share: random rows and the proof that a result is one.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {

inline std::vector<float> random_floats(int64_t count, unsigned seed, float deviation = 1, float mean = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(generator);
  return values;
}

// Runs op(isa, pool, first row, rows) -> [rows, features] over all rows at once and row by row, on every Isa and 1 to 3
// threads: all the same bits. Returns them.
template <typename Op>
std::vector<float> expect_one_result(int64_t all_rows, int64_t features, Op op) {
  std::vector<float> want;
  for (Isa isa : isas()) {
    for (int threads : {1, 2, 3}) {
      ComputePool pool({.threads = threads, .spin_us = 0});
      const std::vector<float> all = op(isa, pool, 0, all_rows);
      std::vector<float> alone;
      for (int64_t r = 0; r < all_rows; ++r) {
        const std::vector<float> row = op(isa, pool, r, 1);
        alone.insert(alone.end(), row.begin(), row.begin() + features);
      }
      EXPECT_TRUE(same_bits(all, alone)) << isa_name(isa) << " threads=" << threads;
      if (want.empty()) want = all;
      EXPECT_TRUE(same_bits(all, want)) << isa_name(isa) << " threads=" << threads;
    }
  }
  return want;
}

}  // namespace baton::kernels::test
