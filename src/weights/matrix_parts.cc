#include "weights/matrix_parts.h"

#include <algorithm>
#include <cmath>

#include "weights/dequantize.h"
#include "weights/printable.h"
#include "weights/tensor_layout.h"

namespace baton::weights {

using tensor::DType;

float tensor_value(const TensorEntry& tensor, int64_t index) {
  float value = 0;
  dequantize_row(tensor.dtype, tensor.data + index * tensor::dtype_info(tensor.dtype).block_bytes, 1, &value);
  return value;
}

int64_t element_count(const TensorEntry& tensor) {
  const auto& info = tensor::dtype_info(tensor.dtype);
  return tensor.bytes / info.block_bytes * info.block_elements;
}

std::string MatrixParts::where(const TensorEntry& tensor) const {
  return fmt::format("{}: tensor {}", checkpoint_.file_path(tensor), printable(tensor.name));
}

const TensorEntry* MatrixParts::find(std::string_view suffix) const {
  const auto it = checkpoint_.tensors().find(base_ + std::string(suffix));
  return it == checkpoint_.tensors().end() ? nullptr : &it->second;
}

Result<const TensorEntry*> MatrixParts::require(std::string_view suffix, std::string_view form) const {
  if (const TensorEntry* tensor = find(suffix)) return tensor;
  return fail(Code::kDataLoss, "{}: tensor {}{} is missing; {} is {}", checkpoint_.path(), printable(base_), suffix,
              printable(base_), form);
}

Result<void> MatrixParts::expect_dtype(const TensorEntry& tensor, std::initializer_list<DType> dtypes) const {
  if (std::ranges::find(dtypes, tensor.dtype) != dtypes.end()) return {};
  std::string wanted;
  for (const DType dtype : dtypes) {
    wanted += fmt::format("{}{}", wanted.empty() ? "" : " or ", tensor::dtype_name(dtype));
  }
  return fail(Code::kDataLoss, "{} is {}, must be {}", where(tensor), tensor::dtype_name(tensor.dtype), wanted);
}

Result<void> MatrixParts::expect_shape(const TensorEntry& tensor, const std::vector<int64_t>& shape) const {
  if (tensor.shape == shape) return {};
  return fail(Code::kDataLoss, "{} has shape {}, must be {}", where(tensor), shape_text(tensor.shape),
              shape_text(shape));
}

Result<void> MatrixParts::expect_matrix(const TensorEntry& tensor) const {
  // Without a zero dimension the file's size bounds every product of dimensions.
  if (tensor.shape.size() == 2 && tensor.bytes > 0) return {};
  return fail(Code::kDataLoss, "{} has shape {}, must be a matrix", where(tensor), shape_text(tensor.shape));
}

Result<std::vector<float>> MatrixParts::column(const TensorEntry& tensor, int64_t rows) const {
  BATON_TRY(expect_dtype(tensor, {DType::kF32, DType::kBF16, DType::kF16}));
  if (tensor.shape != std::vector<int64_t>{rows}) BATON_TRY(expect_shape(tensor, {rows, 1}));
  if (skips_values()) return std::vector<float>();
  std::vector<float> values(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    values[static_cast<size_t>(row)] = tensor_value(tensor, row);
    if (std::isfinite(values[static_cast<size_t>(row)])) continue;
    return fail(Code::kDataLoss, "{}: row {} is {}", where(tensor), row, values[static_cast<size_t>(row)]);
  }
  return values;
}

Result<float> MatrixParts::scalar(const TensorEntry& tensor) const {
  BATON_TRY(expect_dtype(tensor, {DType::kF32, DType::kBF16, DType::kF16, DType::kI8, DType::kI32, DType::kI64}));
  if (element_count(tensor) == 1) return tensor_value(tensor, 0);
  return fail(Code::kDataLoss, "{} has shape {}, must be one number", where(tensor), shape_text(tensor.shape));
}

}  // namespace baton::weights
