// Paged causal attention (GQA) with one arithmetic and one order for prompt and generated tokens.
//
// Exactness (docs/exactness.md, rule 4): positions fall into tiles of 128 and spans of 768; lane(t) = (t / 768) mod 16.
// A lane runs over its tiles by absolute position with an online softmax in fp32; masked positions add nothing; the 16
// lanes merge by a fixed binary tree, empty ones skipped. Keys and values are read as stored (rule 7).
#pragma once

#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/kv_view.h"
#include "tensor/cpu.h"

namespace baton::kernels {

inline constexpr int kAttentionTile = 128;
inline constexpr int kAttentionSpan = 768;
inline constexpr int kAttentionLanes = 16;

// Stores k, v [rows, kv_heads, head_dim] fp32 (row strides in elements) into the cache of `layer`: the rows whose
// positions this rank holds, rounded to its dtype
// (nearest even); fp8 and i8 with one scale per token and head, as latent_cache.h says of an fp8 index key.
void write_kv(const PagedKvView& cache, int layer, std::span<const SequenceSlice> slices, const float* k,
              int64_t k_stride, const float* v, int64_t v_stride, tensor::Isa isa, ComputePool& pool);

struct AttentionArgs {
  PagedKvView cache;
  int layer = 0;
  int heads = 0;  // query heads
  // Null: heads is a multiple of cache.kv_heads, all groups equal. Else [kv_heads + 1], ascending from 0 to `heads`:
  // query heads [head_borders[j], head_borders[j + 1]) use KV head j; there may be none of them.
  const int32_t* head_borders = nullptr;
  float scale = 0;           // of q.k, usually head_dim^-0.5
  const float* q = nullptr;  // [rows, heads, head_dim]
  int64_t q_stride = 0;      // elements per row
  float* out = nullptr;      // [rows, heads, head_dim]
  int64_t out_stride = 0;
  tensor::Isa isa = tensor::Isa::kPortable;
};

// The step's own keys must be written before: with a split context, by all its ranks, whose memory is read. Threads
// split over (slice, row block, kv head); the split never changes a sum. `scratch` is sized by attention_scratch_bytes.
void paged_attention(const AttentionArgs& args, std::span<const SequenceSlice> slices, std::span<std::byte> scratch,
                     ComputePool& pool);
// With unequal groups: kv_heads = 1, heads = the largest group.
size_t attention_scratch_bytes(int heads, int kv_heads, int head_dim, int threads);

struct LanePartials;
// Of a split context, the lanes that this rank holds, for the heads of all its ranks; see lane_partials.h. `args.out`
// is not used. For few rows: every (row, lane) is written to memory.
void paged_attention_lanes(const AttentionArgs& args, std::span<const SequenceSlice> slices,
                           const LanePartials& partials, std::span<std::byte> scratch, ComputePool& pool);

}  // namespace baton::kernels
