// Ascend ModelSlim folders: quant_model_description.json gives each tensor a type, the type says which tensors stand
// beside .weight and what they mean.
//
//   FLOAT         .weight floats
//   W8A8          .weight i8 [out, in], .input_scale, .input_offset, .deq_scale [out], .quant_bias i32 [out]
//   W8A8_DYNAMIC  .weight i8, .weight_scale [out, 1], .weight_offset zeros
//   W4A8_DYNAMIC  .weight i8 [out/2, in] (version 1.0.0: two int4 in a byte, along the output) or i8 [out, in];
//                 .weight_scale, .weight_offset zeros; .scale_bias is a correction that kernels on unsigned nibbles
//                 need and signed ones don't: it is not read
//   W4A8_MXFP     .weight u8 [out, in/2] pairs of e2m1, .weight_scale u8 [out, in/32]
//   W8A8_MXFP8    .weight e4m3 [out, in], .weight_scale u8 [out, in/32]
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "weights/json_parse.h"
#include "weights/matrix_parts.h"
#include "weights/printable.h"
#include "weights/tensor_layout.h"
#include "weights/weight_formats.h"

namespace baton::weights {
namespace {

using tensor::DType;

constexpr std::string_view kTextPrefix = "language_model.";
// What vLLM-Ascend takes for group_size where the description is silent.
constexpr int64_t kGroupSizeSilent = 256;

Result<void> expect_symmetric(const MatrixParts& parts, MatrixSource& source) {
  const TensorEntry* offset = parts.find(".weight_offset");
  if (offset == nullptr) return {};
  source.parts.push_back(offset);
  BATON_TRY(parts.expect_dtype(*offset, {DType::kF32, DType::kBF16, DType::kF16, DType::kI8, DType::kI32}));
  if (parts.skips_values()) return {};
  for (int64_t i = 0; i < element_count(*offset); ++i) {
    if (tensor_value(*offset, i) == 0) continue;
    return fail(Code::kUnimplemented, "{}: element {} is {}; only symmetric weights (offset 0) are read",
                parts.where(*offset), i, tensor_value(*offset, i));
  }
  return {};
}

Result<void> read_channel_scales(const MatrixParts& parts, std::string_view form, MatrixSource& source) {
  BATON_TRY_ASSIGN(const TensorEntry* scale, parts.require(".weight_scale", form));
  BATON_TRY_ASSIGN(source.channel_scales, parts.column(*scale, source.rows));
  source.scale_name = scale->name;
  source.parts.push_back(scale);
  return expect_symmetric(parts, source);
}

MatrixSource stored_codes(const TensorEntry& weight, DType dtype) {
  MatrixSource source;
  source.name = weight.name;
  source.dtype = dtype;
  source.rows = weight.shape[0];
  source.columns = weight.shape[1];
  source.parts = {&weight};
  source.codes = weight.data;
  source.code_row_bytes = source.columns;
  return source;
}

// deq_scale: f32; in folders made for fp16 the same 32 bits in an i64.
Result<std::vector<float>> read_deq_scale(const MatrixParts& parts, const TensorEntry& tensor, int64_t rows) {
  if (tensor.dtype != DType::kI64) return parts.column(tensor, rows);
  if (tensor.shape != std::vector<int64_t>{rows}) BATON_TRY(parts.expect_shape(tensor, {rows, 1}));
  if (parts.skips_values()) return std::vector<float>();
  std::vector<float> values(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    int64_t bits = 0;
    std::memcpy(&bits, tensor.data + row * 8, 8);
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isfinite(value) || (bits != static_cast<int64_t>(static_cast<uint32_t>(bits)) &&
                                  bits != static_cast<int64_t>(static_cast<int32_t>(bits)))) {
      return fail(Code::kDataLoss, "{}: row {} is {}, not the bits of an fp32 number", parts.where(tensor), row, bits);
    }
    values[static_cast<size_t>(row)] = value;
  }
  return values;
}

Result<StaticInput> read_static_input(const MatrixParts& parts, MatrixSource& source) {
  StaticInput input;
  BATON_TRY_ASSIGN(const TensorEntry* scale, parts.require(".input_scale", "W8A8"));
  BATON_TRY(parts.expect_dtype(*scale, {DType::kF32, DType::kBF16, DType::kF16}));
  BATON_TRY_ASSIGN(input.input_scale, parts.scalar(*scale));
  if (!std::isfinite(input.input_scale) || input.input_scale <= 0) {
    return fail(Code::kDataLoss, "{} is {}; it must be above 0", parts.where(*scale), input.input_scale);
  }
  BATON_TRY_ASSIGN(const TensorEntry* offset, parts.require(".input_offset", "W8A8"));
  BATON_TRY_ASSIGN(const float offset_value, parts.scalar(*offset));
  if (!(offset_value >= -128 && offset_value <= 127) || offset_value != std::round(offset_value)) {
    return fail(Code::kDataLoss, "{} is {}, not an int8", parts.where(*offset), offset_value);
  }
  input.input_offset = static_cast<int>(offset_value);
  BATON_TRY_ASSIGN(const TensorEntry* bias, parts.require(".quant_bias", "W8A8"));
  BATON_TRY(parts.expect_dtype(*bias, {DType::kI32}));
  BATON_TRY(parts.expect_shape(*bias, {source.rows}));
  input.quant_bias.resize(static_cast<size_t>(source.rows));
  std::memcpy(input.quant_bias.data(), bias->data, input.quant_bias.size() * 4);
  for (const TensorEntry* part : {scale, offset, bias}) source.parts.push_back(part);
  return input;
}

Result<MatrixSource> int8_static(const MatrixParts& parts, const TensorEntry& weight) {
  BATON_TRY(parts.expect_dtype(weight, {DType::kI8}));
  MatrixSource source = stored_codes(weight, DType::kInt8Static);
  BATON_TRY_ASSIGN(const TensorEntry* scale, parts.require(".deq_scale", "W8A8"));
  BATON_TRY_ASSIGN(source.channel_scales, read_deq_scale(parts, *scale, source.rows));
  source.scale_name = scale->name;
  source.parts.push_back(scale);
  BATON_TRY_ASSIGN(source.static_input, read_static_input(parts, source));
  // deq_scale is the product of both scales already.
  if (const TensorEntry* weight_scale = parts.find(".weight_scale")) source.parts.push_back(weight_scale);
  BATON_TRY(expect_symmetric(parts, source));
  return source;
}

Result<MatrixSource> int8_dynamic(const MatrixParts& parts, const TensorEntry& weight) {
  BATON_TRY(parts.expect_dtype(weight, {DType::kI8}));
  MatrixSource source = stored_codes(weight, DType::kInt8Channel);
  BATON_TRY(read_channel_scales(parts, "W8A8_DYNAMIC", source));
  return source;
}

Result<MatrixSource> int4_dynamic(const MatrixParts& parts, const TensorEntry& weight, int64_t group_size,
                                  std::string_view version) {
  if (group_size != 0 || parts.find(".weight_scale_second") != nullptr) {
    return fail(Code::kUnimplemented,
                "{}: W4A8_DYNAMIC in groups of {} is not read; one scale a channel (group_size 0) is",
                parts.where(weight), group_size);
  }
  if (version != "1.0.0") {
    return fail(Code::kUnimplemented, "{}: W4A8_DYNAMIC of description version \"{}\" is not read; 1.0.0 is",
                parts.where(weight), printable(version));
  }
  BATON_TRY(parts.expect_dtype(weight, {DType::kI8}));
  MatrixSource source = stored_codes(weight, DType::kInt4Channel);
  source.rows *= 2;
  source.layout = MatrixSource::Layout::kOutputPairs;
  if (source.columns % 2 != 0) {
    return fail(Code::kUnimplemented, "{} has {} inputs; an even number is read", parts.where(weight), source.columns);
  }
  BATON_TRY(read_channel_scales(parts, "W4A8_DYNAMIC", source));
  if (const TensorEntry* correction = parts.find(".scale_bias")) source.parts.push_back(correction);
  return source;
}

// MXFP4 (two codes in a byte) and MXFP8.
Result<MatrixSource> microscaled(const MatrixParts& parts, const TensorEntry& weight, bool four_bits) {
  const char* form = four_bits ? "W4A8_MXFP" : "W8A8_MXFP8";
  if (four_bits) {
    BATON_TRY(parts.expect_dtype(weight, {DType::kU8}));
  } else {
    BATON_TRY(parts.expect_dtype(weight, {DType::kF8E4M3, DType::kU8}));
  }
  MatrixSource source = stored_codes(weight, four_bits ? DType::kMxfp4 : DType::kMxfp8);
  if (four_bits) source.columns *= 2;
  if (source.columns % 32 != 0) {
    return fail(Code::kUnimplemented, "{} has {} inputs; {} is read in whole blocks of 32", parts.where(weight),
                source.columns, form);
  }
  BATON_TRY_ASSIGN(const TensorEntry* scale, parts.require(".weight_scale", form));
  BATON_TRY(parts.expect_dtype(*scale, {DType::kU8, DType::kF8E8M0}));
  BATON_TRY(parts.expect_shape(*scale, {source.rows, source.columns / 32}));
  source.scale_name = scale->name;
  source.parts.push_back(scale);
  source.layout = MatrixSource::Layout::kBlocks;
  source.scales = scale->data;
  source.scale_bytes = 1;
  source.scale_row_bytes = source.columns / 32;
  return source;
}

std::unexpected<Status> contradicted(const Checkpoint& checkpoint, std::string_view quantization,
                                     std::string_view found) {
  return fail(Code::kInvalidArgument,
              "{}: quantization \"{}\" was asked for, but {}; leave it out, or make another checkpoint "
              "with `baton quantize`",
              checkpoint.path(), quantization, found);
}

}  // namespace

Result<WeightFormats> WeightFormats::open(const Checkpoint& checkpoint, std::string_view quantization) {
  WeightFormats formats(checkpoint);
  const bool known = quantization == "ascend" || quantization == "fp8" || quantization == "compressed-tensors" ||
                     quantization == "gguf" || quantization.empty();
  if (!known) {
    return fail(Code::kUnimplemented,
                "quantization \"{}\" is not known; \"ascend\", \"fp8\", \"compressed-tensors\" and \"gguf\" are, or "
                "none (as the checkpoint says)",
                printable(quantization));
  }
  if (checkpoint.format() == Checkpoint::Format::kGguf) {
    if (quantization.empty() || quantization == "gguf") return formats;
    if (quantization == "ascend") {
      return fail(Code::kInvalidArgument, "{}: a GGUF file has no {}", checkpoint.path(), kDescriptionName);
    }
    return contradicted(checkpoint, quantization, "this is a GGUF file, whose tensors say their formats");
  }
  BATON_TRY_ASSIGN(formats.method_, read_quantization_config(checkpoint.config(), checkpoint.path() + "/config.json"));
  const bool packed = formats.method_ == QuantMethod::kPackedInt4 || formats.method_ == QuantMethod::kPackedMxfp4;
  if ((quantization == "fp8" && formats.method_ != QuantMethod::kFp8Block) ||
      (quantization == "compressed-tensors" && !packed) || quantization == "gguf") {
    return contradicted(checkpoint, quantization,
                        fmt::format("config.json says {}", quant_method_text(formats.method_)));
  }
  if (quantization != "ascend") quantization = "";  // it holds
  const std::string path = (std::filesystem::path(checkpoint.path()) / kDescriptionName).string();
  std::error_code error;
  formats.described_ = std::filesystem::exists(path, error);
  if (!formats.described_) {
    if (quantization.empty() && formats.method_ != QuantMethod::kAscend) return formats;
    return fail(Code::kNotFound, "{} is missing; quantization \"ascend\" needs the folder that ModelSlim wrote", path);
  }
  if (formats.method_ != QuantMethod::kNone && formats.method_ != QuantMethod::kAscend) {
    return fail(Code::kDataLoss, "{} contradicts config.json, whose quantization_config says {}", path,
                quant_method_text(formats.method_));
  }
  BATON_TRY_ASSIGN(const auto description, read_json_object(path));
  formats.group_size_ = kGroupSizeSilent;
  for (const auto& [key, value] : description.items()) {
    if (key == "group_size" && value.is_number_integer()) formats.group_size_ = value.get<int64_t>();
    if (key == "version" && value.is_string()) formats.version_ = value.get<std::string>();
    if (value.is_string()) formats.types_.emplace(key, value.get<std::string>());
    if (!value.is_string() && key.ends_with(".weight")) {
      return fail(Code::kDataLoss, "{}: key {} must hold the name of a format, not {}", path, printable(key),
                  value.type_name());
    }
  }
  return formats;
}

// Descriptions name text tensors with or without the prefix of a multi-modal class.
const std::string* WeightFormats::described_type(const std::string& base) const {
  auto it = types_.find(base + ".weight");
  if (it == types_.end() && base.starts_with(kTextPrefix))
    it = types_.find(base.substr(kTextPrefix.size()) + ".weight");
  return it == types_.end() ? nullptr : &it->second;
}

Result<std::string> WeightFormats::modelslim_type(const std::string& base) const {
  if (const std::string* type = described_type(base)) return *type;
  return fail(Code::kDataLoss, "{}/{}: key {}.weight is absent, so the tensor's format is not known",
              checkpoint_->path(), kDescriptionName, printable(base));
}

// Matrices that share their input in one product have one type, and all experts that of the first.
Result<void> WeightFormats::check_fused(const std::string& base, const std::string& type) const {
  static constexpr std::array<std::array<std::string_view, 3>, 3> kFused{
      {{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj", ""}, {"w1", "w3", ""}}};
  std::vector<std::string> others;
  const size_t dot = base.rfind('.');
  const std::string leaf = dot == std::string::npos ? base : base.substr(dot + 1);
  for (const auto& members : kFused) {
    if (std::find(members.begin(), members.end(), leaf) == members.end()) continue;
    for (const auto member : members) {
      if (!member.empty()) others.push_back(base.substr(0, dot + 1) + std::string(member));
    }
  }
  constexpr std::string_view kExperts = ".experts.";
  if (const size_t at = base.rfind(kExperts); at != std::string::npos) {
    const size_t number = at + kExperts.size();
    const size_t end = base.find('.', number);
    if (end != std::string::npos) others.push_back(base.substr(0, number) + "0" + base.substr(end));
  }
  for (const std::string& other : others) {
    const std::string* other_type = described_type(other);
    if (other_type == nullptr || *other_type == type) continue;
    return fail(Code::kDataLoss, "{}/{}: {}.weight is {} and {}.weight {}; both must have one type",
                checkpoint_->path(), kDescriptionName, printable(base), printable(type), printable(other),
                printable(*other_type));
  }
  return {};
}

Result<MatrixSource> WeightFormats::modelslim(const MatrixParts& parts) const {
  const std::string& base = parts.base();
  BATON_TRY_ASSIGN(const std::string type, modelslim_type(base));
  BATON_TRY(check_fused(base, type));
  BATON_TRY_ASSIGN(const TensorEntry* weight, parts.require(".weight", type));
  if (type == "FLOAT") return plain(parts, *weight);
  BATON_TRY(parts.expect_matrix(*weight));
  if (type == "W8A8") return int8_static(parts, *weight);
  if (type == "W8A8_DYNAMIC") return int8_dynamic(parts, *weight);
  if (type == "W4A8_DYNAMIC") return int4_dynamic(parts, *weight, group_size_, version_);
  if (type == "W4A8_MXFP" || type == "W8A8_MXFP8") return microscaled(parts, *weight, type == "W4A8_MXFP");
  return fail(Code::kUnimplemented,
              "{}/{}: {}.weight is {}; FLOAT, W8A8, W8A8_DYNAMIC, W4A8_DYNAMIC, W4A8_MXFP and W8A8_MXFP8 are read",
              checkpoint_->path(), kDescriptionName, printable(base), printable(type));
}

}  // namespace baton::weights
