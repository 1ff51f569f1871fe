#include "weights/quantize/matrix_form.h"

#include <cmath>

#include "base/check.h"

namespace baton::weights {
namespace {

using tensor::DType;

constexpr int kCorrectionSplits = 16;  // W4A8: as many ranks as may share the inputs

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

std::string_view modelslim_type_name(MatrixForm form) {
  switch (form) {
    case MatrixForm::kKeep:
      return "FLOAT";
    case MatrixForm::kW8A8:
      return "W8A8";
    case MatrixForm::kW8A8Dynamic:
      return "W8A8_DYNAMIC";
    case MatrixForm::kW4A8Dynamic:
      return "W4A8_DYNAMIC";
    case MatrixForm::kW4A8Mxfp:
      return "W4A8_MXFP";
    case MatrixForm::kW8A8Mxfp8:
      return "W8A8_MXFP8";
    case MatrixForm::kFp8Block:
    case MatrixForm::kInt4Group32:
    case MatrixForm::kMxfp4Packed:
      break;
  }
  return "";
}

std::vector<FormPart> form_parts(MatrixForm form, int64_t rows, int64_t columns, bool splits_input) {
  switch (form) {
    case MatrixForm::kFp8Block:
      return {{".weight", DType::kF8E4M3, {rows, columns}},
              {".weight_scale_inv", DType::kF32, {divide_up(rows, 128), divide_up(columns, 128)}, 128}};
    case MatrixForm::kInt4Group32:
      return {{".weight_packed", DType::kI32, {rows, columns / 8}},
              {".weight_scale", DType::kBF16, {rows, columns / 32}},
              {".weight_shape", DType::kI32, {2}, 0}};
    case MatrixForm::kMxfp4Packed:
      return {{".weight_packed", DType::kU8, {rows, columns / 2}}, {".weight_scale", DType::kU8, {rows, columns / 32}}};
    case MatrixForm::kW8A8:
      return {{".weight", DType::kI8, {rows, columns}},   {".weight_scale", DType::kF32, {rows, 1}},
              {".weight_offset", DType::kF32, {rows, 1}}, {".input_scale", DType::kF32, {1}, 0},
              {".input_offset", DType::kI8, {1}, 0},      {".deq_scale", DType::kF32, {rows}},
              {".quant_bias", DType::kI32, {rows}}};
    case MatrixForm::kW8A8Dynamic:
      return {{".weight", DType::kI8, {rows, columns}},
              {".weight_scale", DType::kF32, {rows, 1}},
              {".weight_offset", DType::kF32, {rows, 1}}};
    case MatrixForm::kW4A8Dynamic:
      return {{".weight", DType::kI8, {rows / 2, columns}, 2},
              {".weight_scale", DType::kF32, {rows, 1}},
              {".weight_offset", DType::kF32, {rows, 1}},
              {".scale_bias", DType::kF32, {rows, splits_input ? kCorrectionSplits : 1}}};
    case MatrixForm::kW4A8Mxfp:
      return {{".weight", DType::kU8, {rows, columns / 2}}, {".weight_scale", DType::kU8, {rows, columns / 32}}};
    case MatrixForm::kW8A8Mxfp8:
      return {{".weight", DType::kF8E4M3, {rows, columns}}, {".weight_scale", DType::kU8, {rows, columns / 32}}};
    case MatrixForm::kKeep:
      break;
  }
  BATON_CHECK(false, "a kept matrix has no parts");
}

std::string form_refusal(MatrixForm form, int64_t rows, int64_t columns) {
  const auto inputs = [&](int64_t block) -> std::string {
    return columns % block == 0 ? "" : fmt::format("{} inputs are not a multiple of {}", columns, block);
  };
  switch (form) {
    case MatrixForm::kFp8Block:
      return inputs(128);
    case MatrixForm::kInt4Group32:
    case MatrixForm::kMxfp4Packed:
    case MatrixForm::kW4A8Mxfp:
    case MatrixForm::kW8A8Mxfp8:
      return inputs(32);
    case MatrixForm::kW4A8Dynamic:
      if (rows % 2 != 0) return fmt::format("{} outputs are not a multiple of 2", rows);
      return inputs(kCorrectionSplits);
    case MatrixForm::kKeep:
    case MatrixForm::kW8A8:
    case MatrixForm::kW8A8Dynamic:
      break;
  }
  return "";
}

}  // namespace baton::weights
