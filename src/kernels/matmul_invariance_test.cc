// Rule 1: a row's bits do not depend on how many rows there are, on the threads, or on where the row stands.
#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

struct Shape {
  int64_t outputs, features;
};

void expect_rows_independent(DType dtype, Isa isa, Shape shape, KOrder order, const std::vector<int64_t>& row_counts,
                             bool more_threads) {
  Random random(7);
  const int64_t max_rows = row_counts.back();
  const auto bytes = random_weights(random, dtype, shape.outputs * shape.features);
  const auto x = random_floats(random, max_rows * shape.features);
  const auto w = pack({.out_features = shape.outputs,
                       .in_features = shape.features,
                       .dtype = dtype,
                       .k_order = order,
                       .tree_unit = order == KOrder::kTree ? std::max<int64_t>(weight_group(dtype), 32) : 0,
                       .isa = isa},
                      bytes);
  ComputePool one({.threads = 1});
  std::vector<float> alone;
  for (int64_t r = 0; r < max_rows; ++r) {
    const auto begin = x.begin() + r * shape.features;
    const auto y = multiply(w, {begin, begin + shape.features}, 1, one);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  for (int threads : more_threads ? std::vector{1, 2, 3} : std::vector{1}) {
    ComputePool pool({.threads = threads, .spin_us = 0});
    for (int64_t rows : row_counts) {
      // The last rows, so that a row stands in other places than when it was alone.
      const auto y = multiply(w, {x.end() - rows * shape.features, x.end()}, rows, pool);
      const std::vector<float> expected(alone.end() - rows * shape.outputs, alone.end());
      ASSERT_TRUE(same_bits(expected, y)) << name_of(dtype, isa) << " rows " << rows << " threads " << threads << " "
                                          << shape.outputs << " x " << shape.features;
    }
  }
}

TEST(MatmulInvariance, AnyNumberOfRows) {
  std::vector<int64_t> counts;
  for (int64_t rows = 1; rows <= 40; ++rows) counts.push_back(rows);
  for (Isa isa : isas()) {
    for (DType dtype : all_types()) {
      for (KOrder order : {KOrder::kSequential, KOrder::kTree}) {
        const int64_t features = weight_group(dtype) >= 128 ? 512 : 96;
        // The portable form is slow: fewer outputs.
        expect_rows_independent(dtype, isa, {isa == Isa::kPortable ? 5 : 83, features}, order,
                                isa == Isa::kPortable ? std::vector<int64_t>{1, 2, 3, 4, 5, 7, 16, 40} : counts, false);
      }
    }
  }
}

TEST(MatmulInvariance, AnyNumberOfThreads) {
  for (Isa isa : isas()) {
    for (DType dtype : all_types()) {
      const int64_t features = weight_group(dtype) >= 128 ? 256 : 64;
      for (int64_t outputs : {1, 15, 17, 33, 95, 131}) {
        if (isa == Isa::kPortable && outputs > 40) continue;
        expect_rows_independent(dtype, isa, {outputs, features}, KOrder::kSequential, {1, 2, 7}, true);
      }
    }
  }
}

TEST(MatmulInvariance, ManyRowsOfModelShapes) {
  const Isa isa = isas().back();
  if (isa == Isa::kPortable) GTEST_SKIP() << "the portable form is too slow for these";
  for (DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kBF16, DType::kF32, DType::kMxfp8, DType::kMxfp4,
                      DType::kInt4Channel, DType::kInt8Static}) {
    expect_rows_independent(dtype, isa, {192, 576}, KOrder::kSequential, {63, 64, 65, 200}, true);
    expect_rows_independent(dtype, isa, {576, 1536}, KOrder::kTree, {64, 130}, true);
  }
  for (DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kFp8Block}) {
    expect_rows_independent(dtype, isa, {200, 1536}, KOrder::kTree, {64, 130}, true);
  }
}

}  // namespace
}  // namespace baton::kernels::test
