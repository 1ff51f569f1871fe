// How a step's latent attention is cut into units of work, and the scratch that a thread has for one. Internal to this
// room.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/attention_ops.h"
#include "kernels/held_lanes.h"
#include "kernels/lane_partials.h"
#include "kernels/latent_attention.h"
#include "kernels/latent_ops.h"

namespace baton::kernels {
namespace {

constexpr int kPointerFloats = kAttentionTile * static_cast<int>(sizeof(void*) / sizeof(float));
constexpr int kBlockQueries = 64;   // query vectors (rows x heads) that share a converted tile: all in the second cache
constexpr int kHeadsMin = 16;       // a block of fewer heads would convert tiles for too little work
constexpr int kSplitQueries = 128;  // per thread: as many queries of single rows may be split over lanes
constexpr int kUnitsPerThread = 2;  // below that many units the work is cut finer
constexpr int kMergeDepth = 5;      // lanes pending in a binary merge of 16, with the one being computed
constexpr float kEmpty = -std::numeric_limits<float>::infinity();

inline int round16(int n) { return (n + 15) / 16 * 16; }
inline int divide_up(int a, int b) { return (a + b - 1) / b; }

// Heads of a block: all blocks of one size but the last.
inline int heads_per_block(int heads) { return divide_up(heads, divide_up(heads, kBlockQueries)); }

struct LaneState {
  float* m;    // [queries]
  float* sum;  // [queries]
  float* o;    // [queries][padded]
};

struct Shape {
  int padded;  // rank rounded up to 16
  int dims;    // rank + rope_dim
  int stride;  // floats of a converted row
  int queries = kBlockQueries;

  static Shape of(int rank, int rope_dim) {
    return {.padded = round16(rank),
            .dims = rank + rope_dim,
            .stride = tile_stride({.kind = PagedKind::kLatent, .dim = rank, .rope_dim = rope_dim})};
  }
  int64_t state_floats(int count) const { return int64_t{count} * (padded + 2); }
  int64_t panel_floats() const { return int64_t{kTurnedPanel} * dims; }
  int64_t score_floats() const { return int64_t{kTurnedPanel} * kAttentionTile; }
  int64_t thread_floats() const {
    const int64_t body = 2 * kPointerFloats + int64_t{kAttentionTile} * stride + panel_floats() +
                         int64_t{queries} * stride + 2 * score_floats() + kMergeDepth * state_floats(queries) +
                         2LL * queries;
    return (body + 15) / 16 * 16;
  }
  // Of split rows: their lanes' states until they are merged.
  int64_t partial_floats(int threads) const {
    return threads == 1 ? 0 : int64_t{threads} * kSplitQueries * kAttentionLanes * (padded + 2);
  }
};

struct ThreadScratch {
  const std::byte** rows;   // [tile] addresses of the tile's latents
  const std::byte** ahead;  // [tile] of the next tile's
  float* tile;              // [tile][stride]
  float* panel;             // [dims][64]: the unit's queries, turned
  float* q;                 // [queries][stride]: before that
  float* turned;            // [tile][64]
  float* scores;            // [64][tile]
  float* states;            // [depth] of LaneState
  float* alpha;             // [queries]
  int* valid;               // [queries]

  static ThreadScratch at(float* base, const Shape& shape) {
    ThreadScratch s;
    s.rows = reinterpret_cast<const std::byte**>(base);
    s.ahead = s.rows + kAttentionTile;
    s.tile = base + 2 * kPointerFloats;
    s.panel = s.tile + int64_t{kAttentionTile} * shape.stride;
    s.q = s.panel + shape.panel_floats();
    s.turned = s.q + int64_t{shape.queries} * shape.stride;
    s.scores = s.turned + shape.score_floats();
    s.states = s.scores + shape.score_floats();
    s.alpha = s.states + kMergeDepth * shape.state_floats(shape.queries);
    s.valid = reinterpret_cast<int*>(s.alpha + shape.queries);
    return s;
  }
};

inline LaneState lane_state(float* base, int queries) { return {base, base + queries, base + 2 * queries}; }

inline int64_t last_position(const SequenceSlice& slice) { return slice.context_len + slice.row_count - 1; }

// A step cut into units: (slice, row block, head block), and of single rows that are split, or of all when the lanes
// are left unmerged, (.., lane).
struct Plan {
  const LatentAttentionArgs& args;
  std::span<const SequenceSlice> slices;
  Shape shape;
  const AttentionOps& ops;
  const LatentOps& latent;
  int heads_block;
  int rows_block;
  bool split = false;
  float* thread_base;
  float* partials;  // [split item][lane] of states with heads_block queries
  const LanePartials* unmerged = nullptr;
  HeldLanes held = {};  // with unmerged
  int64_t units = 0;
  std::atomic<int64_t> next{0};

  int head_blocks() const { return divide_up(args.heads, heads_block); }
  bool is_split(const SequenceSlice& slice) const { return split && slice.row_count == 1; }
  int64_t unit_count(const SequenceSlice& slice) const {
    if (slice.row_count <= 0) return 0;
    if (is_split(slice)) return int64_t{head_blocks()} * lanes_used(last_position(slice));
    const int64_t blocks = int64_t{head_blocks()} * row_blocks(slice);
    return unmerged != nullptr ? blocks * held.used(last_position(slice)) : blocks;
  }
  int row_blocks(const SequenceSlice& slice) const { return divide_up(slice.row_count, rows_block); }
  void count_units() {
    units = 0;
    for (const SequenceSlice& slice : slices) units += unit_count(slice);
  }
  LaneState partial(int64_t item, int lane) const {
    return lane_state(partials + (item * kAttentionLanes + lane) * shape.state_floats(heads_block), heads_block);
  }
};

// Some rows of one slice for some heads.
struct Block {
  const SequenceSlice& slice;
  int first_head;
  int head_count;
  int first_row;  // in the slice
  int row_count;

  int queries() const { return row_count * head_count; }
  int64_t position(int row) const { return slice.context_len + first_row + row; }
  int64_t last() const { return position(row_count - 1); }
  int64_t step_row(int row) const { return slice.row_begin + first_row + row; }
};

inline Block block_of(const Plan& plan, const SequenceSlice& slice, int head_block, int first_row, int row_count) {
  const int first_head = head_block * plan.heads_block;
  return {.slice = slice,
          .first_head = first_head,
          .head_count = std::min(plan.heads_block, plan.args.heads - first_head),
          .first_row = first_row,
          .row_count = row_count};
}

// Cuts finer where threads would idle: single rows over lanes, then smaller blocks of heads. No bit changes.
inline void choose_split(Plan& plan, int threads) {
  const int64_t wanted = int64_t{kUnitsPerThread} * threads;
  if (threads == 1 || plan.units == 0 || plan.units >= wanted) return;
  int64_t singles = 0;
  for (const SequenceSlice& slice : plan.slices) singles += slice.row_count == 1 ? 1 : 0;
  if (plan.unmerged != nullptr) singles = 0;
  // Room for the last head block as if it were full, and for blocks that are halved.
  plan.split = singles > 0 && singles * round16(plan.args.heads + kBlockQueries) <= int64_t{threads} * kSplitQueries;
  plan.count_units();
  while (plan.units < wanted && plan.heads_block / 2 >= kHeadsMin) {
    plan.heads_block = divide_up(plan.heads_block, 2);
    plan.count_units();
  }
}

}  // namespace
}  // namespace baton::kernels
