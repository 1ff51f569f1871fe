// Attention over a context that is spread over ranks, with no key moved: for a few rows, each context rank runs the
// lanes that it holds, for the heads of all of them, and leaves their states unmerged in memory that the ranks share.
// Behind a barrier each rank merges the heads it wants, by the tree that one rank alone would take; so the bits are
// those of one rank (docs/exactness.md, rule 4).
//
//   paged_attention_lanes / latent_attention_lanes(args, slices, partials, ...)   each rank: q of all heads
//   barrier
//   merge_lanes({.partials = partials, .first_head = own, ...}, slices, ...)      each rank: its own heads
//   (a barrier before the partials are written again)
//
// A lane is one rank's when 768 divides the block size (the interleave) and block size * ranks divides 12288.
//
// Layout: row i is the i-th row of the slices, one slice after the other, whatever their row_begin. A (row, lane) is
// one run of lane_floats(): [heads] maxima, [heads] sums, [heads][padded] outputs, fp32, padded with what is not
// defined to a cache line, so that no line is written by two ranks. A maximum of -inf says that the head's lane is
// empty, and that its sum and output mean nothing. Written are the lanes that begin at or before the row's position;
// the others are never read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/attention.h"
#include "kernels/kv_view.h"
#include "tensor/cpu.h"

namespace baton::kernels {

struct LanePartials {
  float* data = nullptr;  // lane_partials_bytes(rows, heads, dim), 64-byte aligned
  int heads = 0;          // of all the ranks that share the context
  int dim = 0;            // of an output: head_dim; the rank of a latent

  int64_t padded() const { return (dim + 15) / 16 * 16; }
  int64_t lane_floats() const { return (heads * (padded() + 2) + 15) / 16 * 16; }
  float* maxima(int64_t row, int lane) const { return data + (row * kAttentionLanes + lane) * lane_floats(); }
  float* sums(int64_t row, int lane) const { return maxima(row, lane) + heads; }
  float* outputs(int64_t row, int lane) const { return sums(row, lane) + heads; }
};
// 16 lanes of `heads` outputs a row: 4.2 MB a row at 128 heads of rank 512.
size_t lane_partials_bytes(int64_t rows, int heads, int dim);

struct MergeLanesArgs {
  LanePartials partials;
  int first_head = 0;      // among those of the partials
  int heads = 0;           // wanted
  float* out = nullptr;    // [rows of the step, heads, dim]: the first wanted head first
  int64_t out_stride = 0;  // elements per row
  tensor::Isa isa = tensor::Isa::kPortable;
};

// Leaves the partials as they are. Threads split over (row, head). The slices are those given to the ..._lanes call.
// scratch: merge_lanes_scratch_bytes; that of either form of attention is large enough.
void merge_lanes(const MergeLanesArgs& args, std::span<const SequenceSlice> slices, std::span<std::byte> scratch,
                 ComputePool& pool);
size_t merge_lanes_scratch_bytes(int dim, int threads);

}  // namespace baton::kernels
