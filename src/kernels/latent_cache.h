// Writes what multi-head latent attention and the lightning indexer keep per token. Formats: kv_view.h; rounding:
//   f32, f16, bf16  nearest, ties to even
//   fp8, i8         scale = max|x| / 448 (fp8) or / 127 (i8), fp32, at least the smallest normal float, over each 128
//                   values of a latent and over the whole of an index key; code = x / scale, nearest, ties to even. The
//                   scale of an i8 index key is kept in f16 (nearest even), and its codes are of that scale; they
//                   saturate at +-127. A latent's rotary key stays bf16.
// A value is read as code * scale, rounded once to fp32. With a split context each rank stores the rows whose positions
// it holds.
#pragma once

#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/kv_view.h"
#include "tensor/cpu.h"

namespace baton::kernels {

// latent: [rows, rank] after its norm; rope_key: [rows, rope_dim] after rotation (null if rope_dim is 0); row strides
// in elements. Called by the rank's owner thread; threads split over rows.
void write_latents(const TokenCacheView& cache, std::span<const SequenceSlice> slices, const float* latent,
                   int64_t latent_stride, const float* rope_key, int64_t rope_stride, tensor::Isa isa,
                   ComputePool& pool);

// keys: [rows, dim] after norm and rotation.
void write_index_keys(const TokenCacheView& cache, std::span<const SequenceSlice> slices, const float* keys,
                      int64_t stride, tensor::Isa isa, ComputePool& pool);

}  // namespace baton::kernels
