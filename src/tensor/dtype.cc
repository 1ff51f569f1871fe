#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace baton::tensor {
namespace {

// Block sizes: the GGUF specification's ggml block structures.
constexpr std::array<DTypeInfo, 24> kInfo{{
    {"f32", 1, 4},          {"f16", 1, 2},          {"bf16", 1, 2},
    {"i8", 1, 1},           {"i32", 1, 4},          {"i64", 1, 8},
    {"q4_0", 32, 18},       {"q4_1", 32, 20},       {"q5_0", 32, 22},
    {"q5_1", 32, 24},       {"q8_0", 32, 34},       {"q4_k", 256, 144},
    {"q5_k", 256, 176},     {"q6_k", 256, 210},     {"u8", 1, 1},
    {"fp8", 1, 1},          {"f8_e8m0", 1, 1},      {"fp8_block", 128, 132},
    {"mxfp8", 32, 33},      {"mxfp4", 32, 17},      {"int4_group32", 32, 18},
    {"int8_channel", 1, 1}, {"int4_channel", 2, 1}, {"int8_static", 1, 1},
}};

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

int64_t dtype_bytes(DType dtype, int64_t elements) {
  const auto& info = dtype_info(dtype);
  BATON_CHECK(elements % info.block_elements == 0, "{} elements of {}", elements, info.name);
  return elements / info.block_elements * info.block_bytes;
}

std::optional<DType> parse_dtype(std::string_view name) {
  if (name == "f32" || name == "float32" || name == "float" || name == "F32") return DType::kF32;
  if (name == "f16" || name == "float16" || name == "half" || name == "F16") return DType::kF16;
  if (name == "bf16" || name == "bfloat16" || name == "BF16") return DType::kBF16;
  if (name == "i8" || name == "int8" || name == "I8") return DType::kI8;
  if (name == "i32" || name == "int32" || name == "I32") return DType::kI32;
  if (name == "i64" || name == "int64" || name == "I64") return DType::kI64;
  if (name == "u8" || name == "uint8" || name == "U8") return DType::kU8;
  if (name == "fp8" || name == "fp8_e4m3" || name == "float8_e4m3fn" || name == "F8_E4M3") return DType::kF8E4M3;
  if (name == "f8_e8m0" || name == "F8_E8M0") return DType::kF8E8M0;
  return std::nullopt;
}

}  // namespace baton::tensor
