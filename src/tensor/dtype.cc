#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace baton::tensor {
namespace {

// Block sizes: the GGUF specification's ggml block structures.
constexpr std::array<DTypeInfo, 14> kInfo{{
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"bf16", 1, 2},
    {"i8", 1, 1},
    {"i32", 1, 4},
    {"i64", 1, 8},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q8_0", 32, 34},
    {"q4_k", 256, 144},
    {"q5_k", 256, 176},
    {"q6_k", 256, 210},
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
  return std::nullopt;
}

}  // namespace baton::tensor
