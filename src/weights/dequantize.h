// The plain reference of what each weight format means as fp32. Kernels are tested against it; nothing fast uses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace baton::weights {

// row: dtype_bytes(dtype, elements) bytes, of any alignment. out: [elements]. elements must be a multiple of the block.
// The formulas, and the order of their fp32 operations, are ggml's (ggml-quants.c, dequantize_row_*): d * q, d * q + m,
// (d * scale) * q - dmin * min, without fma.
void dequantize_row(tensor::DType dtype, const std::byte* row, int64_t elements, float* out);

}  // namespace baton::weights
