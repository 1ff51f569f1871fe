// How a step's paged attention is cut into units of work, and the scratch that a thread has for one. Internal to this
// room.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/attention.h"
#include "kernels/attention_ops.h"
#include "kernels/held_lanes.h"
#include "kernels/lane_partials.h"

namespace baton::kernels {
namespace {

constexpr int kPointerFloats = kAttentionTile * static_cast<int>(sizeof(void*) / sizeof(float));
constexpr int kMaxQueries = 64;  // query vectors (rows x heads of a group) that share a converted tile
constexpr int kMergeDepth = 5;   // lanes pending in a binary merge of 16, with the one being computed
constexpr int kSpanTiles = kAttentionSpan / kAttentionTile;
constexpr int kSplitUnitsPerThread = 4;  // below that many units, single rows are split over lanes too
constexpr float kEmpty = -std::numeric_limits<float>::infinity();

// Bytes of one token's key or value of a head.
inline int64_t kv_row_bytes(const PagedKvView& cache) {
  return entry_token_bytes({.kind = PagedKind::kKeysValues, .dim = cache.head_dim, .dtype = cache.dtype});
}

inline int padded_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }
inline int rows_per_block(int group) { return std::max(1, kMaxQueries / group); }
inline int queries_max(int group) { return std::max(kMaxQueries, group); }

// Where each state of a lane lies: maxima and sums [queries], outputs [queries][padded].
struct LaneState {
  float* m;
  float* sum;
  float* o;
};

// Floats of one thread's scratch, and its parts.
struct ThreadScratch {
  float* q;                     // [queries][padded]
  float* keys;                  // [head_dim][tile]
  float* values;                // [tile][padded]
  float* scores;                // [queries][tile]
  float* states;                // [depth] of LaneState
  float* alpha;                 // [queries]
  int* valid;                   // [queries]
  const std::byte** keys_at;    // [tile] addresses of the tile's keys
  const std::byte** values_at;  // [tile] of its values
  const std::byte** ahead;      // [tile] of the next tile's keys

  static int64_t state_floats(int queries, int padded) { return static_cast<int64_t>(queries) * (padded + 2); }
  static int64_t floats(int queries, int padded) {
    const int64_t n = queries;
    const int64_t body = n * padded + 2LL * kAttentionTile * padded + n * kAttentionTile +
                         kMergeDepth * state_floats(queries, padded) + 2 * n + 3 * kPointerFloats;
    return (body + 15) / 16 * 16;
  }
  static ThreadScratch at(float* base, int queries, int padded) {
    ThreadScratch s;
    s.keys_at = reinterpret_cast<const std::byte**>(base);
    s.values_at = s.keys_at + kAttentionTile;
    s.ahead = s.values_at + kAttentionTile;
    s.keys = base + 3 * kPointerFloats;
    s.values = s.keys + static_cast<int64_t>(padded) * kAttentionTile;
    s.q = s.values + static_cast<int64_t>(padded) * kAttentionTile;
    s.scores = s.q + static_cast<int64_t>(queries) * padded;
    s.states = s.scores + static_cast<int64_t>(queries) * kAttentionTile;
    s.alpha = s.states + kMergeDepth * state_floats(queries, padded);
    s.valid = reinterpret_cast<int*>(s.alpha + queries);
    return s;
  }
  static LaneState state(float* base, int queries) { return {base, base + queries, base + 2 * queries}; }
};

inline int64_t last_position(const SequenceSlice& slice) { return slice.context_len + slice.row_count - 1; }

// Some rows of one slice against one kv head.
struct Block {
  const SequenceSlice& slice;
  int kv_head;
  int first_head;  // query heads
  int group;
  int first_row;  // in the slice
  int row_count;

  int queries() const { return row_count * group; }
  int64_t position(int row) const { return slice.context_len + first_row + row; }
  int64_t last() const { return position(row_count - 1); }
  int64_t step_row(int row) const { return slice.row_begin + first_row + row; }
};

// A step cut into units: (slice, row block, kv head), and of single rows that are split, or of all when the lanes are
// left unmerged, (.., lane).
struct Plan {
  const AttentionArgs& args;
  std::span<const SequenceSlice> slices;
  const AttentionOps& ops;
  int group;  // the largest
  int padded;
  int queries;
  int rows_block;
  bool split = false;
  float* thread_base;
  float* partials;  // [split items][lane] of states with `group` queries
  const LanePartials* unmerged = nullptr;
  HeldLanes held = {};  // with unmerged
  std::atomic<int64_t> next{0};
  int64_t units = 0;

  bool is_split(const SequenceSlice& slice) const { return split && slice.row_count == 1; }
  int64_t unit_count(const SequenceSlice& slice) const {
    if (slice.row_count <= 0) return 0;
    const int64_t kv_heads = args.cache.kv_heads;
    if (is_split(slice)) return kv_heads * lanes_used(last_position(slice));
    return kv_heads * row_blocks(slice) * (unmerged != nullptr ? held.used(last_position(slice)) : 1);
  }
  int row_blocks(const SequenceSlice& slice) const { return (slice.row_count + rows_block - 1) / rows_block; }
  void count_units() {
    units = 0;
    for (const SequenceSlice& slice : slices) units += unit_count(slice);
  }
  // Row block `index` of a slice, or its one row.
  Block block(const SequenceSlice& slice, int kv_head, int index) const {
    const int32_t* borders = args.head_borders;
    return {.slice = slice,
            .kv_head = kv_head,
            .first_head = borders == nullptr ? kv_head * group : borders[kv_head],
            .group = borders == nullptr ? group : borders[kv_head + 1] - borders[kv_head],
            .first_row = index * rows_block,
            .row_count = std::min(rows_block, slice.row_count - index * rows_block)};
  }
  LaneState partial(int64_t item, int lane) const {
    const int64_t floats = ThreadScratch::state_floats(group, padded);
    return ThreadScratch::state(partials + (item * kAttentionLanes + lane) * floats, group);
  }
};

// Finds the slice of ascending unit numbers; one for each thread.
class UnitCursor {
 public:
  explicit UnitCursor(const Plan& plan) : plan_(plan) {}
  const SequenceSlice& seek(int64_t unit) {
    for (;; ++index_) {
      const SequenceSlice& slice = plan_.slices[index_];
      const int64_t count = plan_.unit_count(slice);
      if (unit < base_ + count) return slice;
      base_ += count;
      rows_ += std::max(0, slice.row_count);
      if (slice.row_count > 0 && plan_.is_split(slice)) split_items_ += plan_.args.cache.kv_heads;
    }
  }
  int64_t unit_in_slice(int64_t unit) const { return unit - base_; }
  int64_t rows_before() const { return rows_; }
  int64_t split_items_before() const { return split_items_; }

 private:
  const Plan& plan_;
  size_t index_ = 0;
  int64_t base_ = 0;
  int64_t rows_ = 0;
  int64_t split_items_ = 0;
};

}  // namespace
}  // namespace baton::kernels
