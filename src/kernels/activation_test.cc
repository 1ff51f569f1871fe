// Activations become int8 as the contract says, with the same bits on every instruction set, whatever is in them.
#include <cmath>
#include <limits>

#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Activation, IsSymmetricInt8PerGroup) {
  Random random(12);
  ComputePool pool({.threads = 1});
  const int64_t features = 768;
  const auto x = random_floats(random, 2 * features);
  for (Isa isa : isas()) {
    for (auto format : {ActivationFormat::kInt8Group32, ActivationFormat::kInt8Group256}) {
      const int64_t group = format == ActivationFormat::kInt8Group32 ? 32 : 256;
      const auto buffer = quantize(x, 2, features, format, isa, pool);
      for (int64_t r = 0; r < 2; ++r) {
        const auto* codes = reinterpret_cast<const int8_t*>(buffer.values() + r * buffer.row_stride_bytes());
        for (int64_t g = 0; g < features / group; ++g) {
          float maximum = 0;
          for (int64_t i = 0; i < group; ++i) maximum = std::max(maximum, std::abs(x[r * features + g * group + i]));
          const float scale = buffer.scales()[r * buffer.scales_per_row() + g];
          ASSERT_EQ(scale, maximum / 127.0f);
          for (int64_t i = 0; i < group; ++i) {
            const int64_t k = g * group + i;
            // Half a code, and a little for the two roundings before it.
            ASSERT_NEAR(codes[k] * double{scale}, x[r * features + k], 0.50002 * scale);
          }
        }
        for (int64_t g = 0; g < features / 32; ++g) {
          int32_t sum = 0;
          for (int64_t i = 0; i < 32; ++i) sum += codes[g * 32 + i];
          ASSERT_EQ(buffer.group_sums()[r * features / 32 + g], sum);
          if (group == 32) {
            const float scaled = buffer.scaled_sums()[r * features / 32 + g];
            ASSERT_EQ(scaled, static_cast<float>(sum) * buffer.scales()[r * buffer.scales_per_row() + g]);
          }
        }
      }
    }
  }
}

TEST(Activation, RoundsTiesToEven) {
  ComputePool pool({.threads = 1});
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = 2.5f;
  x[4] = -2.5f;
  x[5] = -127.0f;
  for (Isa isa : isas()) {
    const auto buffer = quantize(x, 1, 32, ActivationFormat::kInt8Group32, isa, pool);
    const auto* codes = reinterpret_cast<const int8_t*>(buffer.values());
    EXPECT_EQ(codes[0], 127);
    EXPECT_EQ(codes[1], 0);
    EXPECT_EQ(codes[2], 2);
    EXPECT_EQ(codes[3], 2);
    EXPECT_EQ(codes[4], -2);
    EXPECT_EQ(codes[5], -127);
  }
}

void expect_same(const ActivationBuffer& a, const ActivationBuffer& b, const std::string& what) {
  const auto rows = static_cast<size_t>(a.rows()), features = static_cast<size_t>(a.features());
  const auto same = [&](const void* left, const void* right, size_t bytes) {
    ASSERT_EQ(std::memcmp(left, right, bytes), 0) << what;
  };
  same(a.values(), b.values(), rows * static_cast<size_t>(a.row_stride_bytes()));
  if (a.scales_per_row() == 0) return;
  same(a.scales(), b.scales(), rows * static_cast<size_t>(a.scales_per_row()) * 4);
  same(a.group_sums(), b.group_sums(), rows * static_cast<size_t>(a.sums_per_row()) * 4);
  if (a.format() == ActivationFormat::kInt8Group32)
    same(a.scaled_sums(), b.scaled_sums(), rows * features / 32 * 4);
  else if (a.format() == ActivationFormat::kInt8Group256)
    same(a.short_sums(), b.short_sums(), rows * features / 256 * ActivationBuffer::kShortSums * 2);
}

// Any float bits at all: subnormals, infinities, NaN.
TEST(Activation, HasTheSameBitsOnEveryInstructionSet) {
  Random random(13);
  ComputePool pool({.threads = 1});
  for (int trial = 0; trial < 50; ++trial) {
    const int64_t features = 512;
    auto x = random_floats(random, 3 * features);
    for (auto& value : x) {
      if (trial % 2 == 0) value = std::ldexp(value, static_cast<int>(random() % 250) - 140);
      if (trial % 5 == 4 && random() % 64 == 0) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    }
    const StaticQuant quant{.input_scale = std::ldexp(0.7f, trial - 30), .input_offset = trial * 5 - 128};
    for (auto format : {ActivationFormat::kInt8Group32, ActivationFormat::kInt8Group256, ActivationFormat::kBF16,
                        ActivationFormat::kInt8Row, ActivationFormat::kInt8Static}) {
      // Whole rows may have any length.
      const bool whole = format == ActivationFormat::kInt8Row || format == ActivationFormat::kInt8Static;
      const int64_t count = whole ? features - trial : features;
      const auto first = quantize(x, 3, count, format, Isa::kPortable, pool, quant);
      for (Isa isa : isas())
        expect_same(first, quantize(x, 3, count, format, isa, pool, quant), std::string(tensor::isa_name(isa)));
    }
  }
}

TEST(Activation, ZeroGroupsHaveScaleZeroAndWildOnesBecomeNan) {
  ComputePool pool({.threads = 1});
  std::vector<float> x(256, 0.0f);
  x[40] = kNan;
  x[70] = -kInfinity;
  x[100] = 1e-40f;
  x[130] = 3e38f;
  x[131] = -3e38f;
  for (Isa isa : isas()) {
    const auto buffer = quantize(x, 1, 256, ActivationFormat::kInt8Group32, isa, pool);
    const auto* codes = reinterpret_cast<const int8_t*>(buffer.values());
    EXPECT_EQ(buffer.scales()[0], 0.0f);
    EXPECT_TRUE(std::isnan(buffer.scales()[1]));
    EXPECT_TRUE(std::isnan(buffer.scales()[2]));
    EXPECT_EQ(buffer.scales()[3], 0.0f);
    for (int k = 0; k < 128; ++k) EXPECT_EQ(codes[k], 0);
    EXPECT_EQ(codes[130], 127);
    EXPECT_EQ(codes[131], -127);
  }
}

// One scale for the row: its largest value is 127, ties go to even, zeros fill up to 8.
TEST(Activation, WholeRowsHaveOneScale) {
  ComputePool pool({.threads = 1});
  for (Isa isa : isas()) {
    std::vector<float> x(37, 0.0f);
    x[3] = 254.0f;
    x[20] = -254.0f;
    x[33] = 1.0f;
    x[34] = 3.0f;
    x[36] = -5.0f;
    const auto buffer = quantize(x, 1, 37, ActivationFormat::kInt8Row, isa, pool);
    const auto* codes = reinterpret_cast<const int8_t*>(buffer.values());
    EXPECT_EQ(buffer.row_stride_bytes(), 40);
    EXPECT_EQ(buffer.scales_per_row(), 1);
    EXPECT_EQ(buffer.scales()[0], 2.0f);
    EXPECT_EQ(codes[3], 127);
    EXPECT_EQ(codes[20], -127);
    EXPECT_EQ(codes[33], 0);
    EXPECT_EQ(codes[34], 2);
    EXPECT_EQ(codes[36], -2);
    for (int k = 37; k < 40; ++k) EXPECT_EQ(codes[k], 0);
    EXPECT_EQ(buffer.group_sums()[0], 0);
    // A NaN or an infinity anywhere makes the row zeros of scale NaN; nothing at all makes zeros of scale 0.
    for (float wild : {kNan, kInfinity, -kInfinity}) {
      auto bad = x;
      bad[35] = wild;
      const auto zeros = quantize(bad, 1, 37, ActivationFormat::kInt8Row, isa, pool);
      EXPECT_TRUE(std::isnan(zeros.scales()[0]));
      EXPECT_EQ(static_cast<int8_t>(zeros.values()[3]), 0);
    }
    EXPECT_EQ(quantize(std::vector<float>(37, 0.0f), 1, 37, ActivationFormat::kInt8Row, isa, pool).scales()[0], 0.0f);
  }
}

TEST(Activation, StaticCodesFollowTheCheckpoint) {
  ComputePool pool({.threads = 1});
  const StaticQuant quant{.input_scale = 0.5f, .input_offset = 10};
  const std::vector<float> x{0.0f, 0.25f, 0.75f, -0.25f, 58.5f, 59.0f, 1e30f, -69.0f, -69.5f, -1e30f, 1e-40f};
  const std::vector<int> expected{10, 10, 12, 10, 127, 127, 127, -128, -128, -128, 10};
  for (Isa isa : isas()) {
    const auto buffer = quantize(x, 1, 11, ActivationFormat::kInt8Static, isa, pool, quant);
    for (size_t k = 0; k < x.size(); ++k) {
      EXPECT_EQ(reinterpret_cast<const int8_t*>(buffer.values())[k], expected[k]) << k << " " << tensor::isa_name(isa);
    }
    EXPECT_EQ(buffer.scales()[0], 1.0f);
    for (float wild : {kNan, kInfinity, -kInfinity}) {
      auto bad = x;
      bad[10] = wild;
      const auto zeros = quantize(bad, 1, 11, ActivationFormat::kInt8Static, isa, pool, quant);
      EXPECT_TRUE(std::isnan(zeros.scales()[0]));
      EXPECT_EQ(static_cast<int8_t>(zeros.values()[0]), 0);
    }
  }
}

TEST(Activation, ANanReachesEveryOutputOfItsRowAndNoOther) {
  Random random(14);
  ComputePool pool({.threads = 1});
  for (Isa isa : isas()) {
    for (DType dtype : all_types()) {
      auto x = random_floats(random, 5 * 256);
      x[2 * 256 + 77] = kNan;
      const auto w = pack({.out_features = 20, .in_features = 256, .dtype = dtype, .isa = isa},
                          random_weights(random, dtype, 20 * 256));
      const auto y = multiply(w, x, 5, pool);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 20 == 2) << name_of(dtype, isa);
    }
  }
}

TEST(Activation, OddFeatureCountsOfPlainFormatsArePadded) {
  Random random(15);
  ComputePool pool({.threads = 2, .spin_us = 0});
  const auto x = random_floats(random, 3 * 37);
  for (Isa isa : isas()) {
    const auto buffer = quantize(x, 3, 37, ActivationFormat::kBF16, isa, pool);
    EXPECT_EQ(buffer.row_stride_bytes(), 76);
    for (int64_t r = 0; r < 3; ++r) {
      const auto* row = reinterpret_cast<const uint16_t*>(buffer.values() + r * 76);
      for (size_t k = 0; k < 37; ++k) EXPECT_EQ(row[k], tensor::float_to_bf16(x[static_cast<size_t>(r) * 37 + k]));
      EXPECT_EQ(row[37], 0);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::test
