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
  // Elements of safetensors files.
  kU8,
  kF8E4M3,  // e4m3fn: no infinities
  kF8E8M0,  // a power of two: a scale
  // Weight formats that checkpoints keep in several tensors. A row as kernels take it is a run of blocks, each its
  // scale and then its codes; in a byte of two codes the low nibble is the even input.
  kFp8Block,     // 128 inputs: f32 scale, e4m3 codes (DeepSeek: one scale per 128 x 128)
  kMxfp8,        // 32 inputs: e8m0 scale, e4m3 codes
  kMxfp4,        // 32 inputs: e8m0 scale, e2m1 codes
  kInt4Group32,  // 32 inputs: bf16 scale, codes of value + 8
  // One scale per output row, kept beside the codes (kernels/matmul.h).
  kInt8Channel,  // activations int8 per row
  kInt4Channel,  // two's complement nibbles; activations int8 per row
  kInt8Static,   // activations int8 by the checkpoint's scale and offset
};

struct DTypeInfo {
  std::string_view name;  // "q4_1"
  int block_elements;     // elements per block; 1 for plain types
  int block_bytes;        // bytes per block
};
const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
// Weights that GGUF files keep: floats and its block formats.
inline constexpr bool is_gguf_weight(DType dtype) {
  return dtype <= DType::kBF16 || (dtype >= DType::kQ4_0 && dtype <= DType::kQ6_K);
}
// Bytes of `elements` consecutive elements; elements must be a multiple of the block.
int64_t dtype_bytes(DType dtype, int64_t elements);
// "bf16", "bfloat16", "float16", ... to a plain type.
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace baton::tensor
