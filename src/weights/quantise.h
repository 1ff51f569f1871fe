// fp32 rows to every weight format: plain quantisers, for `baton make-checkpoint` and for tests.
//
// One pass, no search for better scales and no importance weights: correct, not the best that a format can hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace baton::weights {

// x: [elements], finite; elements a multiple of the format's block. out: dtype_bytes(dtype, elements) bytes.
// F32, F16, BF16 and the block formats; integers are not a weight format. F16, BF16, Q8_0, Q4_*, Q5_0 and Q5_1 give
// the bytes of ggml's reference quantisers (ggml-quants.c, quantize_row_*_ref).
void quantise_row(tensor::DType dtype, const float* x, int64_t elements, std::byte* out);

// All rows of a tensor: x holds whole rows of `row_elements`.
std::vector<std::byte> quantise(tensor::DType dtype, std::span<const float> x, int64_t row_elements);

}  // namespace baton::weights
