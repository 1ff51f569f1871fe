// A format read or written differently from ggml makes every answer wrong without any error.
//
// Goldens: testdata/ggml_quants.gguf, made by tools/goldens/ggml_quants.py with PyPI gguf (version inside the file).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "weights/checkpoint.h"
#include "weights/dequantize.h"
#include "weights/k_quant_scales.h"
#include "weights/quantise.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using tensor::DType;

constexpr DType kFormats[] = {DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                              DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

class Goldens : public testing::TestWithParam<DType> {
 protected:
  Goldens() : file_(*open_checkpoint(BATON_SOURCE_DIR "/src/weights/testdata/ggml_quants.gguf")) {}
  const TensorEntry* find(const std::string& name) const {
    const auto it = file_->tensors().find(name);
    return it == file_->tensors().end() ? nullptr : &it->second;
  }
  std::vector<float> floats(const std::string& name) const {
    const TensorEntry* entry = find(name);
    std::vector<float> values(static_cast<size_t>(entry->bytes) / 4);
    std::memcpy(values.data(), entry->data, values.size() * 4);
    return values;
  }
  std::string format() const { return std::string(tensor::dtype_name(GetParam())); }
  std::unique_ptr<Checkpoint> file_;
};

TEST_P(Goldens, DequantizesBitForBitAsGgml) {
  const TensorEntry* blocks = find(format() + ".blocks");
  const auto expected = floats(format() + ".values");
  ASSERT_NE(blocks, nullptr);
  ASSERT_EQ(blocks->dtype, GetParam());
  ASSERT_EQ(expected.size(), 1024u);
  std::vector<float> values(expected.size());
  dequantize_row(GetParam(), blocks->data, static_cast<int64_t>(values.size()), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i])) << i << " " << expected[i];
  }
}

TEST_P(Goldens, QuantisesByteForByteAsGgmlWhereItsPythonCan) {
  const TensorEntry* expected = find(format() + ".quantised");
  if (expected == nullptr) GTEST_SKIP() << "PyPI gguf has no quantiser for " << format();
  const auto made = quantise(GetParam(), floats("input"), 256);
  ASSERT_EQ(static_cast<int64_t>(made.size()), expected->bytes);
  const int block = tensor::dtype_info(GetParam()).block_bytes;
  for (size_t i = 0; i < made.size(); ++i) {
    ASSERT_EQ(made[i], expected->data[i])
        << "block " << i / static_cast<size_t>(block) << " byte " << i % static_cast<size_t>(block);
  }
}

// The largest error that a plain quantiser may make on a block whose farthest element is `farthest` and whose spread is
// `spread` (maximum minus minimum, zero included).
float error_bound(DType dtype, float farthest, float spread) {
  constexpr float kHalf = 0x1p-11f;  // relative rounding of an f16 scale, times the levels it multiplies
  switch (dtype) {
    case DType::kF16:
      return farthest * kHalf + 0x1p-25f;
    case DType::kBF16:
      return farthest * 0x1p-8f;
    case DType::kQ4_0:
      return farthest * (1.0f / 8 + kHalf);  // the positive end may be clipped by a whole step
    case DType::kQ4_1:
      return spread * (0.5f / 15 + kHalf) + farthest * kHalf;
    case DType::kQ5_0:
      return farthest * (1.0f / 16 + kHalf);
    case DType::kQ5_1:
      return spread * (0.5f / 31 + kHalf) + farthest * kHalf;
    case DType::kQ8_0:
      return farthest * (0.5f / 127 + kHalf);
    // Half a step, half a level of the 6-bit scale over all steps, half a level of the 6-bit minimum.
    case DType::kQ4_K:
      return spread * (0.5f / 15 + 0.5f / 63 + 2 * kHalf) + farthest * (0.5f / 63 + 2 * kHalf);
    case DType::kQ5_K:
      return spread * (0.5f / 31 + 0.5f / 63 + 2 * kHalf) + farthest * (0.5f / 63 + 2 * kHalf);
    // A whole step at the clipped end, half a level of the int8 scale over 32 steps.
    case DType::kQ6_K:
      return farthest * (1.0f / 32 + 0.5f / 127 + 2 * kHalf);
    default:
      return 0;
  }
}

TEST_P(Goldens, ARoundTripStaysWithinTheFormatsBound) {
  const auto x = floats("input");
  const auto made = quantise(GetParam(), x, 256);
  std::vector<float> back(x.size());
  dequantize_row(GetParam(), made.data(), static_cast<int64_t>(x.size()), back.data());
  const auto block = static_cast<size_t>(tensor::dtype_info(GetParam()).block_elements);
  for (size_t begin = 0; begin < x.size(); begin += block) {
    float farthest = 0, low = 0, high = 0;
    for (size_t i = begin; i < begin + block; ++i) {
      farthest = std::max(farthest, std::abs(x[i]));
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
    for (size_t i = begin; i < begin + block; ++i) {
      // An f16 scale of a tiny block is subnormal: its absolute spacing, times the levels it multiplies (31 * 63).
      ASSERT_LE(std::abs(back[i] - x[i]), error_bound(GetParam(), farthest, high - low) + 2048 * 0x1p-25f) << i;
    }
  }
}

TEST_P(Goldens, MeanErrorIsThatOfTheStepAndNotOfABrokenOne) {
  std::vector<float> x(8192);
  uint32_t state = 7;
  for (auto& value : x) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  const auto made = quantise(GetParam(), x, 256);
  std::vector<float> back(x.size());
  dequantize_row(GetParam(), made.data(), static_cast<int64_t>(x.size()), back.data());
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) squares += std::pow(back[i] - x[i], 2);
  const double rms = std::sqrt(squares / static_cast<double>(x.size()));
  // Uniform input in [-1, 1]: the step is 2 / levels and its rms error step / sqrt(12).
  const auto expected = [](double levels) { return 2 / levels / std::sqrt(12.0); };
  const std::map<DType, double> levels = {
      {DType::kF16, 1024}, {DType::kBF16, 256}, {DType::kQ4_0, 16}, {DType::kQ4_1, 16}, {DType::kQ5_0, 32},
      {DType::kQ5_1, 32},  {DType::kQ8_0, 255}, {DType::kQ4_K, 16}, {DType::kQ5_K, 32}, {DType::kQ6_K, 64}};
  EXPECT_LT(rms, 1.35 * expected(levels.at(GetParam())));
  RecordProperty("rms_millionths", static_cast<int>(rms * 1e6));
}

INSTANTIATE_TEST_SUITE_P(Format, Goldens, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(tensor::dtype_name(info.param)); });

TEST(KQuantScales, EveryPairSurvivesThePacking) {
  for (int index = 0; index < 8; ++index) {
    for (int scale = 0; scale < 64; ++scale) {
      for (int min = 0; min < 64; ++min) {
        uint8_t packed[12] = {};
        pack_k_scale(packed, index, {static_cast<uint8_t>(scale), static_cast<uint8_t>(min)});
        const auto back = unpack_k_scale(packed, index);
        ASSERT_EQ(back.scale, scale);
        ASSERT_EQ(back.min, min);
      }
    }
  }
}

TEST(Quantise, WildValuesDoNotUpsetTheProcess) {
  for (const float wild : {3e38f, -3e38f, 1e-45f, INFINITY, NAN}) {
    std::vector<float> x(256, 0.5f);
    x[3] = wild;
    for (const DType dtype : kFormats) EXPECT_FALSE(quantise(dtype, x, 256).empty());
  }
}

}  // namespace
}  // namespace baton::weights
