// Element and block formats of weights, activations and caches, with their sizes. Formats of GGUF keep its names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace baton::tensor {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI8,
  kI32,
  kI64,
  // GGUF block formats: 32 elements a block ...
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  // ... and 256 elements a super-block.
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct DTypeInfo {
  std::string_view name;  // "q4_1"
  int block_elements;     // elements per block; 1 for plain types
  int block_bytes;        // bytes per block
};
const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
// Bytes of `elements` consecutive elements; elements must be a multiple of the block.
int64_t dtype_bytes(DType dtype, int64_t elements);
// "bf16", "bfloat16", "float16", ... to a plain type.
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace baton::tensor
