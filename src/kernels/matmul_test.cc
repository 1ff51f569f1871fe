// Every format on every instruction set against a plain sum in double; the same bits across instruction sets; the K
// tree against one written by hand; bias added last.
#include <cmath>

#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

constexpr int64_t kRows = 5;

// |error| <= (roundings in sequence) * 2^-24 * sum |w x|: each group costs a rounding of its scale product, of its
// integer made float and of its fma, each also for a minimum. bf16 and floats: one or two per element. A scale per
// output: a few in all.
double bound(DType dtype, int64_t features, double magnitude) {
  const bool elements = activation_format(dtype) == ActivationFormat::kBF16 || weight_group(dtype) < 32;
  const double groups = is_channel(dtype) ? 1
                        : elements        ? static_cast<double>(features)
                                          : static_cast<double>(features) / static_cast<double>(weight_group(dtype));
  const double per_group = elements ? 2 : 6;
  return (groups * per_group + 16) * 0x1p-24 * magnitude + 1e-30;
}

void expect_close(const PackedMatrix& w, const ActivationBuffer& x, const std::vector<float>& y,
                  const std::string& what) {
  const auto& spec = w.spec();
  std::vector<float> row(static_cast<size_t>(spec.in_features));
  for (int64_t n = 0; n < spec.out_features; ++n) {
    unpack_row(w, n, row.data());
    for (int64_t r = 0; r < x.rows(); ++r) {
      const auto values = activation_values(x, r);
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < row.size(); ++k) {
        sum += double{row[k]} * values[k];
        magnitude += std::abs(double{row[k]} * values[k]);
      }
      // A code times a scale may be small where code and minimum cancel: count both.
      if (spec.dtype != DType::kF32 && spec.dtype != DType::kF16 && spec.dtype != DType::kBF16) magnitude *= 4;
      ASSERT_NEAR(y[static_cast<size_t>(r * spec.out_features + n)], sum,
                  bound(spec.dtype, spec.in_features, magnitude))
          << what << " row " << r << " output " << n << " of " << spec.out_features << " x " << spec.in_features;
    }
  }
}

TEST(Matmul, AgreesWithASumInDouble) {
  Random random(1);
  ComputePool pool({.threads = 1});
  for (DType dtype : all_types()) {
    for (int64_t features : {256, 768, 1536}) {
      const int64_t outputs = 40;
      const auto bytes = random_weights(random, dtype, outputs * features);
      const auto x = random_floats(random, kRows * features);
      for (Isa isa : isas()) {
        const auto w = pack({.out_features = outputs, .in_features = features, .dtype = dtype, .isa = isa}, bytes);
        const auto activations = quantize_for(w, x, kRows, pool);
        expect_close(w, activations, multiply(w, x, kRows, pool), name_of(dtype, isa));
      }
    }
  }
}

// A 32-wide format must serve K that is no multiple of 256, and plain formats any K.
TEST(Matmul, ServesShortAndOddInputs) {
  Random random(2);
  ComputePool pool({.threads = 1});
  for (DType dtype : all_types()) {
    for (int64_t features : {1, 2, 3, 6, 31, 32, 33, 64, 96, 128, 384, 576, 577, 578}) {
      if (features % tensor::dtype_info(dtype).block_elements != 0) continue;
      const auto bytes = random_weights(random, dtype, 17 * features);
      const auto x = random_floats(random, kRows * features);
      for (Isa isa : isas()) {
        const auto w = pack({.out_features = 17, .in_features = features, .dtype = dtype, .isa = isa}, bytes);
        const auto activations = quantize_for(w, x, kRows, pool);
        expect_close(w, activations, multiply(w, x, kRows, pool), name_of(dtype, isa));
      }
    }
  }
}

// Row sums of quantised weights and of floats do not depend on the instruction set; bf16 not on portable or avx2.
TEST(Matmul, GivesTheSameBitsOnEveryInstructionSet) {
  Random random(3);
  ComputePool pool({.threads = 1});
  for (DType dtype : all_types()) {
    for (int trial = 0; trial < 6; ++trial) {
      const int64_t features = 256 * (1 + static_cast<int64_t>(random() % 5));
      const int64_t outputs = 1 + static_cast<int64_t>(random() % 70);
      const int64_t rows = 1 + static_cast<int64_t>(random() % 9);
      const bool tree = trial % 2 == 1;
      const auto bytes = random_weights(random, dtype, outputs * features);
      const auto x = random_floats(random, rows * features);
      std::vector<float> first;
      for (Isa isa : isas()) {
        const auto w = pack({.out_features = outputs,
                             .in_features = features,
                             .dtype = dtype,
                             .k_order = tree ? KOrder::kTree : KOrder::kSequential,
                             .tree_unit = tree ? 256 : 0,
                             .isa = isa},
                            bytes);
        const auto y = multiply(w, x, rows, pool);
        if (first.empty()) first = y;
        if (activation_format(dtype) == ActivationFormat::kBF16 && isa == Isa::kAvx512) continue;
        ASSERT_TRUE(same_bits(first, y)) << name_of(dtype, isa) << " " << rows << " x " << outputs << " x " << features;
      }
    }
  }
}

// The 16 leaves written out as the contract has them: sums of the units [i U / 16, (i + 1) U / 16), then pairs.
float add_tree(std::vector<std::pair<bool, float>> slots) {
  while (slots.size() > 1) {
    std::vector<std::pair<bool, float>> next;
    for (size_t i = 0; i < slots.size(); i += 2) {
      const auto [has_left, left] = slots[i];
      const auto [has_right, right] = slots[i + 1];
      if (has_left && has_right)
        next.emplace_back(true, left + right);
      else
        next.push_back(has_left ? slots[i] : slots[i + 1]);
    }
    slots = std::move(next);
  }
  return slots[0].second;
}

// A leaf's sum is the product of a matrix that holds that leaf's columns alone.
TEST(Matmul, AddsLeavesAsTheCanonicalTree) {
  Random random(4);
  ComputePool pool({.threads = 1});
  struct Case {
    DType dtype;
    int64_t unit, units;
  };
  for (const auto& c :
       {Case{DType::kQ4_1, 64, 9}, Case{DType::kQ8_0, 32, 48}, Case{DType::kQ4_0, 64, 16}, Case{DType::kQ6_K, 256, 7},
        Case{DType::kQ4_K, 256, 17}, Case{DType::kF32, 8, 5}, Case{DType::kBF16, 64, 9}, Case{DType::kF16, 3, 33},
        Case{DType::kQ5_1, 32, 1}, Case{DType::kFp8Block, 128, 17}, Case{DType::kMxfp8, 64, 9},
        Case{DType::kMxfp4, 32, 35}, Case{DType::kInt4Group32, 64, 16}}) {
    const int64_t features = c.unit * c.units;
    const int64_t outputs = 20;
    const int64_t rows = 3;
    const auto bytes = random_weights(random, c.dtype, outputs * features);
    const auto x = random_floats(random, rows * features);
    for (Isa isa : isas()) {
      MatmulSpec spec{.out_features = outputs,
                      .in_features = features,
                      .dtype = c.dtype,
                      .k_order = KOrder::kTree,
                      .tree_unit = c.unit,
                      .isa = isa};
      const auto y = multiply(pack(spec, bytes), x, rows, pool);
      std::vector<std::vector<std::pair<bool, float>>> slots(static_cast<size_t>(rows * outputs));
      for (int64_t leaf = 0; leaf < 16; ++leaf) {
        const int64_t begin = leaf * c.units / 16 * c.unit;
        const int64_t end = (leaf + 1) * c.units / 16 * c.unit;
        std::vector<float> part(slots.size());
        if (begin < end) {
          std::vector<std::byte> columns;
          std::vector<float> inputs;
          for (int64_t n = 0; n < outputs; ++n) {
            const auto row = bytes.begin() + tensor::dtype_bytes(c.dtype, features) * n;
            columns.insert(columns.end(), row + tensor::dtype_bytes(c.dtype, begin),
                           row + tensor::dtype_bytes(c.dtype, end));
          }
          for (int64_t r = 0; r < rows; ++r) {
            inputs.insert(inputs.end(), x.begin() + r * features + begin, x.begin() + r * features + end);
          }
          part = multiply(
              pack({.out_features = outputs, .in_features = end - begin, .dtype = c.dtype, .isa = isa}, columns),
              inputs, rows, pool);
        }
        for (size_t i = 0; i < slots.size(); ++i) slots[i].emplace_back(begin < end, part[i]);
      }
      std::vector<float> expected;
      for (const auto& slot : slots) expected.push_back(add_tree(slot));
      ASSERT_TRUE(same_bits(expected, y)) << name_of(c.dtype, isa) << " unit " << c.unit << " x " << c.units;
    }
  }
}

// Integer sums are exact: the tree and the plain order are one.
TEST(Matmul, ChannelFormatsNeedNoTree) {
  Random random(8);
  ComputePool pool({.threads = 1});
  for (DType dtype : {DType::kInt8Channel, DType::kInt4Channel, DType::kInt8Static}) {
    const auto bytes = random_weights(random, dtype, 20 * 576);
    const auto x = random_floats(random, 3 * 576);
    for (Isa isa : isas()) {
      MatmulSpec spec{.out_features = 20, .in_features = 576, .dtype = dtype, .isa = isa};
      const auto plain = multiply(pack(spec, bytes), x, 3, pool);
      spec.k_order = KOrder::kTree;
      spec.tree_unit = 64;
      EXPECT_TRUE(same_bits(plain, multiply(pack(spec, bytes), x, 3, pool))) << name_of(dtype, isa);
    }
  }
}

TEST(Matmul, AddsTheBiasLast) {
  Random random(5);
  ComputePool pool({.threads = 1});
  for (Isa isa : isas()) {
    const auto bytes = random_weights(random, DType::kQ8_0, 50 * 64);
    const auto x = random_floats(random, 3 * 64);
    const auto bias = random_floats(random, 50);
    const auto w = pack({.out_features = 50, .in_features = 64, .dtype = DType::kQ8_0, .isa = isa}, bytes);
    auto expected = multiply(w, x, 3, pool);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % 50];
    EXPECT_TRUE(same_bits(expected, multiply(w, x, 3, pool, bias.data())));
  }
}

TEST(Matmul, WritesNothingBesideItsOutputs) {
  Random random(6);
  ComputePool pool({.threads = 1});
  for (Isa isa : isas()) {
    for (DType dtype : {DType::kQ4_1, DType::kBF16, DType::kMxfp8, DType::kInt8Channel}) {
      const auto bytes = random_weights(random, dtype, 33 * 64);
      const auto x = random_floats(random, 2 * 64);
      const auto w = pack({.out_features = 33, .in_features = 64, .dtype = dtype, .isa = isa}, bytes);
      const auto activations = quantize(x, 2, 64, activation_format(dtype), isa, pool);
      std::vector<float> y(2 * 40, 7.0f);
      matmul(w, activations, nullptr, y.data(), 40, pool);
      for (size_t r = 0; r < 2; ++r) {
        for (size_t n = 33; n < 40; ++n) EXPECT_EQ(y[r * 40 + n], 7.0f);
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::test
