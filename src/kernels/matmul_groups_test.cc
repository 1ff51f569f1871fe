// Experts over sorted tokens and matrices of heads: every row has the bits of `matmul` of that row alone, however many
// threads share the work and however unequal the groups are.
#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

constexpr int64_t kOutputs = 83;

struct Experts {
  std::vector<PackedMatrix> w;
  Experts(Random& random, DType dtype, int64_t count, int64_t features, Isa isa) {
    for (int64_t i = 0; i < count; ++i) {
      w.push_back(pack({.out_features = kOutputs, .in_features = features, .dtype = dtype, .isa = isa},
                       random_weights(random, dtype, kOutputs * features)));
    }
  }
};

// Groups of the given sizes, and rows that belong to none between them.
std::vector<MatmulGroup> make_groups(const Experts& experts, const std::vector<int64_t>& sizes, int64_t gap) {
  std::vector<MatmulGroup> groups;
  int64_t row = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    groups.push_back({.w = &experts.w[i % experts.w.size()], .row_begin = row, .row_count = sizes[i]});
    row += sizes[i] + gap;
  }
  return groups;
}

void expect_groups_equal_matmul(DType dtype, Isa isa, const std::vector<int64_t>& sizes, int64_t gap) {
  Random random(21);
  const int64_t features = weight_group(dtype) >= 128 ? 256 : 96;
  const Experts experts(random, dtype, 4, features, isa);
  const auto groups = make_groups(experts, sizes, gap);
  const int64_t rows = groups.back().row_begin + groups.back().row_count + gap;
  const auto x = random_floats(random, rows * features);
  ComputePool one({.threads = 1});
  const int64_t stride = kOutputs + 5;
  std::vector<float> expected(static_cast<size_t>(rows * stride), -7.0f);
  for (const MatmulGroup& group : groups) {
    for (int64_t r = group.row_begin; r < group.row_begin + group.row_count; ++r) {
      const auto y = multiply(*group.w, {x.begin() + r * features, x.begin() + (r + 1) * features}, 1, one);
      std::copy(y.begin(), y.end(), expected.begin() + r * stride);
    }
  }
  for (int threads : {1, 2, 3, 7}) {
    ComputePool pool({.threads = threads, .spin_us = 0});
    const auto activations = quantize_for(experts.w[0], x, rows, pool);
    std::vector<float> y(expected.size(), -7.0f);
    matmul_groups(groups, activations, y.data(), stride, pool);
    ASSERT_TRUE(same_bits(expected, y)) << name_of(dtype, isa) << " threads " << threads;
  }
}

TEST(MatmulGroups, EachRowIsAsIfAlone) {
  for (Isa isa : isas()) {
    for (DType dtype : all_types()) {
      expect_groups_equal_matmul(dtype, isa, {1, 1, 1, 1, 1, 1, 1, 1}, 0);
      expect_groups_equal_matmul(dtype, isa, {0, 3, 0, 0, 17, 1, 0, 5, 0}, 0);
      expect_groups_equal_matmul(dtype, isa, {2, 0, 6}, 2);
    }
  }
}

// Wide enough that oneDNN serves a group's first 64 rows.
TEST(MatmulGroups, GroupsOfManyRowsToo) {
  expect_groups_equal_matmul(DType::kBF16, isas().back(), {1, 70, 0, 64, 2}, 1);
  expect_groups_equal_matmul(DType::kMxfp4, isas().back(), {1, 70, 0, 64, 2}, 1);
}

TEST(MatmulGroups, NoGroupsAndEmptyGroupsWriteNothing) {
  Random random(22);
  ComputePool pool({.threads = 2, .spin_us = 0});
  const Experts experts(random, DType::kMxfp4, 2, 64, isas().back());
  const auto activations = quantize_for(experts.w[0], random_floats(random, 64), 1, pool);
  std::vector<float> y(kOutputs, -7.0f);
  matmul_groups({}, activations, y.data(), kOutputs, pool);
  matmul_groups(make_groups(experts, {0, 0}, 0), activations, y.data(), kOutputs, pool);
  EXPECT_EQ(y, std::vector<float>(kOutputs, -7.0f));
}

TEST(MatmulHeads, EachHeadOfARowIsAsIfAlone) {
  Random random(23);
  const int64_t heads = 5, outputs = 40;
  for (Isa isa : isas()) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kFp8Block, DType::kInt8Channel, DType::kInt4Group32}) {
      const int64_t features = 128;
      std::vector<PackedMatrix> w;
      for (int64_t h = 0; h < heads; ++h) {
        w.push_back(pack({.out_features = outputs, .in_features = features, .dtype = dtype, .isa = isa},
                         random_weights(random, dtype, outputs * features)));
      }
      for (int64_t rows : {1, 2, 9}) {
        const int64_t x_stride = heads * features + 3, y_stride = heads * outputs + 2;
        const auto x = random_floats(random, rows * x_stride);
        ComputePool one({.threads = 1});
        std::vector<float> expected(static_cast<size_t>(rows * y_stride), -7.0f);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t h = 0; h < heads; ++h) {
            const auto begin = x.begin() + r * x_stride + h * features;
            const auto y = multiply(w[static_cast<size_t>(h)], {begin, begin + features}, 1, one);
            std::copy(y.begin(), y.end(), expected.begin() + r * y_stride + h * outputs);
          }
        }
        for (int threads : {1, 3}) {
          ComputePool pool({.threads = threads, .spin_us = 0});
          auto scratch = ActivationBuffer::allocate(rows * heads, features);
          ASSERT_TRUE(scratch.has_value());
          std::vector<float> y(expected.size(), -7.0f);
          matmul_heads(w, x.data(), x_stride, rows, y.data(), y_stride, *scratch, pool);
          ASSERT_TRUE(same_bits(expected, y)) << name_of(dtype, isa) << " rows " << rows << " threads " << threads;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::test
