// Codes must be those of the tools that publish such checkpoints, and never farther from a weight than half a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/float_convert.h"
#include "weights/checkpoint.h"
#include "weights/matrix_parts.h"
#include "weights/quantize/matrix_form.h"

namespace baton::weights {
namespace {

using testing::HasSubstr;

// testdata/weight_forms: input, and the bytes that compressed-tensors 0.20.1 and torch 2.15.0 make of it
// (tools/goldens/weight_forms.py).
struct Golden {
  std::string folder, base;
  MatrixForm form;
};

class EncodeGoldens : public testing::TestWithParam<Golden> {};

TEST_P(EncodeGoldens, BytesAreThoseOfThePublishedTool) {
  const auto checkpoint = *open_checkpoint(BATON_SOURCE_DIR "/src/weights/testdata/weight_forms/" + GetParam().folder);
  const auto& tensors = checkpoint->tensors();
  const auto& input = tensors.at(GetParam().base + ".input");
  const int64_t rows = input.shape[0], columns = input.shape[1];
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < x.size(); ++i) x[i] = tensor_value(input, static_cast<int64_t>(i));
  const auto encoded =
      encode_rows(GetParam().form, {.x = x.data(), .rows = rows, .columns = columns, .matrix_rows = rows});
  ASSERT_TRUE(encoded.has_value()) << encoded.error().to_string();
  const auto parts = form_parts(GetParam().form, rows, columns, false);
  ASSERT_EQ(parts.size(), encoded->size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& expected = tensors.at(GetParam().base + parts[i].suffix);
    EXPECT_EQ(expected.dtype, parts[i].dtype) << parts[i].suffix;
    EXPECT_EQ(expected.shape, parts[i].shape) << parts[i].suffix;
    ASSERT_EQ(std::ssize((*encoded)[i]), expected.bytes) << parts[i].suffix;
    for (int64_t at = 0; at < expected.bytes; ++at) {
      ASSERT_EQ((*encoded)[i][static_cast<size_t>(at)], expected.data[at]) << parts[i].suffix << " byte " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, EncodeGoldens,
                         testing::Values(Golden{"int4", "language_model.model.layers.1.mlp.experts.0.gate_proj",
                                                MatrixForm::kInt4Group32},
                                         Golden{"mxfp4", "language_model.model.layers.1.block_sparse_moe.experts.0.w1",
                                                MatrixForm::kMxfp4Packed},
                                         Golden{"fp8", "model.layers.0.self_attn.q_a_proj", MatrixForm::kFp8Block}));

std::vector<float> drawn(size_t count) {
  std::vector<float> x(count);
  uint32_t state = 11;
  for (auto& value : x) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return x;
}

TEST(EncodeRows, W4A8TakesNeighbouringRowsIntoOneByteAndKeepsItsCorrection) {
  const int64_t columns = 32;
  const auto x = drawn(4 * 32);
  const auto parts = *encode_rows(
      MatrixForm::kW4A8Dynamic, {.x = x.data(), .rows = 4, .columns = columns, .matrix_rows = 4, .splits_input = true});
  ASSERT_EQ(parts[0].size(), 64u);
  std::vector<float> scales(4), corrections(4 * 16);
  std::memcpy(scales.data(), parts[1].data(), 16);
  std::memcpy(corrections.data(), parts[3].data(), corrections.size() * 4);
  for (size_t row = 0; row < 4; ++row) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[row * 32 + i]));
    EXPECT_FLOAT_EQ(scales[row], largest / 7);
    float sum = 0;
    for (size_t i = 0; i < 32; ++i) {
      const int byte = static_cast<int>(parts[0][row / 2 * 32 + i]);
      const int nibble = row % 2 == 0 ? byte & 15 : byte >> 4;
      const float value = scales[row] * static_cast<float>(nibble < 8 ? nibble : nibble - 16);
      EXPECT_LE(std::abs(value - x[row * 32 + i]), scales[row] * 0.5001f);
      sum += value;
      if (i % 2 == 1) {
        EXPECT_NEAR(corrections[row * 16 + i / 2], 8 * sum, 1e-4f) << "a sixteenth of the inputs";
        sum = 0;
      }
    }
  }
}

TEST(EncodeRows, StaticBiasTakesTheOffsetOut) {
  const auto x = drawn(2 * 16);
  const auto parts = *encode_rows(MatrixForm::kW8A8,
                                  {.x = x.data(), .rows = 2, .columns = 16, .matrix_rows = 2, .input = {0.25f, -3}});
  for (size_t row = 0; row < 2; ++row) {
    int sum = 0;
    for (size_t i = 0; i < 16; ++i) sum += static_cast<int8_t>(parts[0][row * 16 + i]);
    int32_t bias = 0;
    float scale = 0, deq = 0;
    std::memcpy(&bias, parts[6].data() + row * 4, 4);
    std::memcpy(&scale, parts[1].data() + row * 4, 4);
    std::memcpy(&deq, parts[5].data() + row * 4, 4);
    EXPECT_EQ(bias, 3 * sum);
    EXPECT_EQ(deq, scale * 0.25f);
  }
  EXPECT_EQ(static_cast<int8_t>(parts[4][0]), -3);
}

TEST(EncodeRows, RowsOfZerosAndWildOnesStayNumbers) {
  for (const float value : {0.0f, 1e-45f, 1e-38f, 3e38f, -3e38f}) {
    const std::vector<float> x(2 * 128, value);
    for (const MatrixForm form : {MatrixForm::kFp8Block, MatrixForm::kInt4Group32, MatrixForm::kMxfp4Packed,
                                  MatrixForm::kW8A8, MatrixForm::kW4A8Dynamic, MatrixForm::kW8A8Mxfp8}) {
      const auto parts = encode_rows(form, {.x = x.data(), .rows = 2, .columns = 128, .matrix_rows = 2});
      ASSERT_TRUE(parts.has_value());
      const auto described = form_parts(form, 2, 128, false);
      for (size_t i = 0; i < described.size(); ++i) {
        const auto& bytes = (*parts)[i];
        if (described[i].dtype == tensor::DType::kF32 && described[i].suffix != ".scale_bias") {
          for (size_t at = 0; at < bytes.size(); at += 4) {
            float scale = 0;
            std::memcpy(&scale, bytes.data() + at, 4);
            EXPECT_TRUE(std::isfinite(scale)) << value;
          }
        }
        if (described[i].dtype == tensor::DType::kF8E4M3) {
          for (const std::byte code : bytes) EXPECT_NE(static_cast<int>(code) & 0x7f, 0x7f) << value;
        }
      }
    }
  }
}

TEST(EncodeRows, AWeightThatIsNoNumberIsNamed) {
  for (const float wild : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(256, 0.5f);
    x[130] = wild;
    const auto parts = encode_rows(MatrixForm::kMxfp4Packed,
                                   {.x = x.data(), .row_begin = 128, .rows = 2, .columns = 128, .matrix_rows = 130});
    ASSERT_FALSE(parts.has_value());
    EXPECT_THAT(parts.error().message(), HasSubstr("row 129, input 2 is"));
  }
}

}  // namespace
}  // namespace baton::weights
