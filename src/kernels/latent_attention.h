// Multi-head latent attention in absorbed form, for prompt and generated tokens alike: every head attends to the same
// stored latents, which are keys (with the rotary key beside them) and values.
//   score(h, t) = scale * q[h] . [latent t | rotary key t];  out[h] = sum over t of softmax(score)(t) * latent t
// (DeepSeek-V2, section 2.1, with W_UK folded into q and W_UV left to the caller.)
//
// Exactness: tiles, spans, lanes and merge as in attention.h; the arithmetic of attention_ops.h. The same bits on every
// instruction set. Sparse form: a lane holds the selected positions whose spans are its own, ascending, cut into tiles
// of 128 by their count; so all positions selected gives the bits of the dense form, and nothing depends on who shares
// the step or on which rank holds which lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/kv_view.h"
#include "tensor/cpu.h"

namespace baton::kernels {

struct LatentAttentionArgs {
  TokenCacheView cache;      // of kind kLatent; rank = entry.dim
  int heads = 0;             // of this rank
  float scale = 0;           // of the scores
  const float* q = nullptr;  // [rows, heads, rank + rope_dim]: absorbed, then rotary
  int64_t q_stride = 0;      // elements per row
  float* out = nullptr;      // [rows, heads, rank]
  int64_t out_stride = 0;
  // Null: dense. Else [rows, selected_stride]: positions that the row attends to, ascending, none above its own, at
  // least one; selected_count: [rows]. Indexed by the step's row.
  const int32_t* selected = nullptr;
  int64_t selected_stride = 0;
  const int32_t* selected_count = nullptr;
  tensor::Isa isa = tensor::Isa::kPortable;
};

// The step's own latents must be written before: with a split context, by all its ranks, whose memory is read. Threads
// split over (slice, row block, head block), or single rows over
// lanes too; the split never changes a sum. Nothing is allocated: `scratch` is sized by latent_attention_scratch_bytes.
void latent_attention(const LatentAttentionArgs& args, std::span<const SequenceSlice> slices,
                      std::span<std::byte> scratch, ComputePool& pool);
size_t latent_attention_scratch_bytes(int heads, int rank, int rope_dim, int threads);

struct LanePartials;
// Of a split context, the lanes that this rank holds, for the heads of all its ranks; see lane_partials.h. `args.out`
// is not used; args.heads = partials.heads. For few rows: every (row, lane) is written to memory.
void latent_attention_lanes(const LatentAttentionArgs& args, std::span<const SequenceSlice> slices,
                            const LanePartials& partials, std::span<std::byte> scratch, ComputePool& pool);

}  // namespace baton::kernels
