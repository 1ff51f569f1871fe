// One block of a GGUF quantised format taken apart into codes and scales. Pure; any thread.
// Formats: the public GGUF block structures (names as there).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace baton::kernels {

// w[i] = scale * (code - offset) (+ min); K-quants: w[i] = scale * sub_scale[j] * (code - offset) - min * sub_min[j],
// j = i / 32 (q6_k: i / 16).
struct GgufBlock {
  uint8_t codes[256];      // unsigned: q8_0 is stored plus 128
  uint16_t scale = 0;      // f16 bits
  uint16_t min = 0;        // f16 bits
  uint8_t sub_scales[16];  // q6_k: int8
  uint8_t sub_mins[8];
};

// Reads dtype_info(dtype).block_bytes bytes. dtype: a quantised one.
void read_gguf_block(tensor::DType dtype, const std::byte* bytes, GgufBlock& block);

}  // namespace baton::kernels
