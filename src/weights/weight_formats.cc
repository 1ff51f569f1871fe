#include "weights/weight_formats.h"

#include <algorithm>

#include "weights/matrix_parts.h"
#include "weights/printable.h"
#include "weights/tensor_layout.h"

namespace baton::weights {
namespace {

using tensor::DType;

constexpr std::string_view kWeight = ".weight";

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

Result<void> expect_whole_blocks(const MatrixParts& parts, const TensorEntry& tensor, int64_t columns, DType dtype) {
  const int block = tensor::dtype_info(dtype).block_elements;
  if (columns % block == 0) return {};
  return fail(Code::kUnimplemented, "{} has {} inputs; {} is read in whole blocks of {}", parts.where(tensor), columns,
              tensor::dtype_name(dtype), block);
}

}  // namespace

Result<MatrixSource> WeightFormats::find(const std::string& weight_name, Values values) const {
  std::string base = weight_name;
  if (base.ends_with(kWeight)) base.resize(base.size() - kWeight.size());
  const MatrixParts parts(*checkpoint_, std::move(base), values);
  if (described_) return modelslim(parts);
  const TensorEntry* weight = parts.find(kWeight);
  const TensorEntry* codes = parts.find(".weight_packed");
  if (weight != nullptr && codes != nullptr) {
    return fail(Code::kDataLoss, "{}: there are both {} and {}", checkpoint_->path(), weight->name, codes->name);
  }
  if (codes != nullptr) return packed(parts, *codes);
  if (weight == nullptr) {
    return fail(Code::kDataLoss, "{}: tensor {} is missing", checkpoint_->path(), printable(weight_name));
  }
  return weight->dtype == DType::kF8E4M3 ? fp8_block(parts, *weight) : plain(parts, *weight);
}

Result<void> WeightFormats::expect_method(QuantMethod found, const TensorEntry& tensor) const {
  if (method_ == found) return {};
  return fail(Code::kDataLoss, "{}: tensor {} ({} {}) is {}, but config.json says {}", checkpoint_->file_path(tensor),
              printable(tensor.name), tensor::dtype_name(tensor.dtype), shape_text(tensor.shape),
              quant_method_text(found), quant_method_text(method_));
}

Result<MatrixSource> WeightFormats::plain(const MatrixParts& parts, const TensorEntry& weight) const {
  const bool ggml_mxfp4 = weight.dtype == DType::kMxfp4;
  if (weight.shape.size() < 2 || weight.bytes == 0 || !(tensor::is_gguf_weight(weight.dtype) || ggml_mxfp4)) {
    return fail(Code::kDataLoss, "{} ({} {}) is not a weight matrix in a format this version multiplies",
                parts.where(weight), tensor::dtype_name(weight.dtype), shape_text(weight.shape));
  }
  for (const char* suffix : {".weight_scale_inv", ".weight_scale"}) {
    if (const TensorEntry* scale = parts.find(suffix)) {
      return fail(Code::kDataLoss, "{} is {}, but there is a {} too", parts.where(weight),
                  tensor::dtype_name(weight.dtype), scale->name);
    }
  }
  MatrixSource source;
  source.name = weight.name;
  source.dtype = weight.dtype;
  source.columns = weight.shape.back();
  source.rows = 1;
  for (size_t i = 0; i + 1 < weight.shape.size(); ++i) source.rows *= weight.shape[i];
  source.parts = {&weight};
  source.codes = weight.data;
  source.code_row_bytes = source.row_bytes();
  if (ggml_mxfp4) source.layout = MatrixSource::Layout::kSplitHalves;
  return source;
}

Result<MatrixSource> WeightFormats::fp8_block(const MatrixParts& parts, const TensorEntry& weight) const {
  BATON_TRY(expect_method(QuantMethod::kFp8Block, weight));
  BATON_TRY(parts.expect_matrix(weight));
  MatrixSource source;
  source.name = parts.base() + std::string(kWeight);
  source.dtype = DType::kFp8Block;
  source.rows = weight.shape[0];
  source.columns = weight.shape[1];
  BATON_TRY(expect_whole_blocks(parts, weight, source.columns, source.dtype));
  BATON_TRY_ASSIGN(const TensorEntry* scale, parts.require(".weight_scale_inv", "fp8 in blocks"));
  BATON_TRY(parts.expect_dtype(*scale, {DType::kF32}));
  BATON_TRY(parts.expect_shape(*scale, {divide_up(source.rows, 128), divide_up(source.columns, 128)}));
  source.scale_name = scale->name;
  source.parts = {&weight, scale};
  source.layout = MatrixSource::Layout::kBlocks;
  source.codes = weight.data;
  source.code_row_bytes = source.columns;
  source.scales = scale->data;
  source.scale_bytes = 4;
  source.scale_row_bytes = scale->shape[1] * 4;
  source.rows_per_scale = 128;
  return source;
}

// compressed-tensors: int4 in words of eight, or mxfp4 in bytes of two. Either way byte b of a row holds inputs 2b (low
// nibble) and 2b + 1.
Result<MatrixSource> WeightFormats::packed(const MatrixParts& parts, const TensorEntry& codes) const {
  BATON_TRY(parts.expect_dtype(codes, {DType::kI32, DType::kU8}));
  const bool int4 = codes.dtype == DType::kI32;
  BATON_TRY(expect_method(int4 ? QuantMethod::kPackedInt4 : QuantMethod::kPackedMxfp4, codes));
  BATON_TRY(parts.expect_matrix(codes));
  for (const char* suffix : {".weight_zero_point", ".weight_g_idx", ".weight_global_scale"}) {
    if (const TensorEntry* other = parts.find(suffix)) {
      return fail(Code::kUnimplemented, "{}: such a part is not read", parts.where(*other));
    }
  }
  MatrixSource source;
  source.name = parts.base() + std::string(kWeight);
  source.dtype = int4 ? DType::kInt4Group32 : DType::kMxfp4;
  source.rows = codes.shape[0];
  source.columns = codes.shape[1] * (int4 ? 8 : 2);
  source.parts = {&codes};
  if (int4) {
    BATON_TRY_ASSIGN(const TensorEntry* shape, parts.require(".weight_shape", "int4 in words of eight"));
    BATON_TRY(parts.expect_dtype(*shape, {DType::kI32, DType::kI64}));
    BATON_TRY(parts.expect_shape(*shape, {2}));
    const auto rows = static_cast<int64_t>(tensor_value(*shape, 0));
    const auto columns = static_cast<int64_t>(tensor_value(*shape, 1));
    if (rows != source.rows || columns != source.columns) {
      return fail(Code::kDataLoss, "{} says [{}, {}], but {} holds [{}, {}]", parts.where(*shape), rows, columns,
                  codes.name, source.rows, source.columns);
    }
    source.parts.push_back(shape);
  }
  BATON_TRY(expect_whole_blocks(parts, codes, source.columns, source.dtype));
  BATON_TRY_ASSIGN(const TensorEntry* scale, parts.require(".weight_scale", quant_method_text(method_)));
  if (int4) {
    BATON_TRY(parts.expect_dtype(*scale, {DType::kBF16}));
  } else {
    BATON_TRY(parts.expect_dtype(*scale, {DType::kU8, DType::kF8E8M0}));
  }
  BATON_TRY(parts.expect_shape(*scale, {source.rows, source.columns / 32}));
  source.scale_name = scale->name;
  source.parts.push_back(scale);
  source.layout = MatrixSource::Layout::kBlocks;
  source.codes = codes.data;
  source.code_row_bytes = source.columns / 2;
  source.scales = scale->data;
  source.scale_bytes = int4 ? 2 : 1;
  source.scale_row_bytes = source.columns / 32 * source.scale_bytes;
  return source;
}

}  // namespace baton::weights
