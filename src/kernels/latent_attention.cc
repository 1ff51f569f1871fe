// How a step's latent attention is cut into units of work, and how one unit runs. The arithmetic is in attention_ops.h.
#include "kernels/latent_attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kernels/attention_ops.h"
#include "kernels/held_lanes.h"
#include "kernels/lane_partials.h"
#include "kernels/latent_ops.h"
#include "kernels/latent_rows.h"

namespace baton::kernels {
namespace {

constexpr int kPointerFloats = kAttentionTile * static_cast<int>(sizeof(void*) / sizeof(float));
constexpr int kBlockQueries = 64;   // query vectors (rows x heads) that share a converted tile: all in the second cache
constexpr int kHeadsMin = 16;       // a block of fewer heads would convert tiles for too little work
constexpr int kSplitQueries = 128;  // per thread: as many queries of single rows may be split over lanes
constexpr int kUnitsPerThread = 2;  // below that many units the work is cut finer
constexpr int kMergeDepth = 5;      // lanes pending in a binary merge of 16, with the one being computed
constexpr float kEmpty = -std::numeric_limits<float>::infinity();

int round16(int n) { return (n + 15) / 16 * 16; }
int divide_up(int a, int b) { return (a + b - 1) / b; }

// Heads of a block: all blocks of one size but the last.
int heads_per_block(int heads) { return divide_up(heads, divide_up(heads, kBlockQueries)); }

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

LaneState lane_state(float* base, int queries) { return {base, base + queries, base + 2 * queries}; }

int64_t last_position(const SequenceSlice& slice) { return slice.context_len + slice.row_count - 1; }

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

class UnitRunner {
 public:
  UnitRunner(const Plan& plan, int thread)
      : plan_(plan), scratch_(ThreadScratch::at(plan.thread_base + thread * plan.shape.thread_floats(), plan.shape)) {}

  void run_block(const Block& block) {
    load_queries(block);
    const int lanes = lanes_used(block.last());
    LatentWalk walk = walk_of(block, {0, lanes});
    LatentTile tile = walk.next(scratch_.rows);
    int depth = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      tile = run_lane(block, lane, walk, tile, state(depth++));
      for (int bits = lane; bits & 1; bits >>= 1) merge_top(depth, block.queries());
    }
    while (depth > 1) merge_top(depth, block.queries());
    store_out(block, state(0));
  }

  void run_single_lane(const Block& block, int lane, LaneState out) {
    load_queries(block);
    LatentWalk walk = walk_of(block, {lane, lane + 1});
    const LatentTile tile = walk.next(scratch_.rows);
    run_lane(block, lane, walk, tile, out);
  }

  // row: of the block's first among those of the unmerged lanes.
  void run_unmerged(const Block& block, int lane, int64_t row) {
    if (lane >= lanes_used(block.last())) return;
    const LaneState from = state(0);
    run_single_lane(block, lane, from);
    const LanePartials& to = *plan_.unmerged;
    const int heads = block.head_count;
    const int64_t padded = plan_.shape.padded;
    for (int r = 0; r < block.row_count; ++r, ++row) {
      std::copy_n(from.m + r * heads, heads, to.maxima(row, lane) + block.first_head);
      std::copy_n(from.sum + r * heads, heads, to.sums(row, lane) + block.first_head);
      std::copy_n(from.o + r * heads * padded, heads * padded, to.outputs(row, lane) + block.first_head * padded);
    }
  }

  // Merges the lanes of a split row, in the tree's order, into the first.
  void merge_split(const Block& block, int64_t item) {
    const int lanes = lanes_used(block.last());
    for (int step = 1; step < lanes; step *= 2) {
      for (int lane = 0; lane + step < lanes; lane += 2 * step) {
        merge_states(plan_.partial(item, lane), plan_.partial(item, lane + step), block.queries());
      }
    }
    store_out(block, plan_.partial(item, 0));
  }

 private:
  LaneState state(int depth) const {
    return lane_state(scratch_.states + depth * plan_.shape.state_floats(plan_.shape.queries), plan_.shape.queries);
  }

  void load_queries(const Block& block) {
    const LatentAttentionArgs& args = plan_.args;
    const int dims = plan_.shape.dims;
    float* q = scratch_.q;
    for (int r = 0; r < block.row_count; ++r) {
      const float* row = args.q + block.step_row(r) * args.q_stride + int64_t{block.first_head} * dims;
      for (int h = 0; h < block.head_count; ++h, q += plan_.shape.stride) {
        plan_.ops.scale_row(row + int64_t{h} * dims, args.scale, dims, q);
      }
    }
    plan_.latent.turn(scratch_.q, block.queries(), dims, plan_.shape.stride, scratch_.panel);
  }

  LatentWalk walk_of(const Block& block, LatentWalk::Lanes lanes) const {
    const LatentAttentionArgs& args = plan_.args;
    const int64_t row = block.step_row(0);
    const std::span<const int32_t> selected =
        args.selected == nullptr
            ? std::span<const int32_t>()
            : std::span(args.selected + row * args.selected_stride, static_cast<size_t>(args.selected_count[row]));
    return {args.cache, block.slice, lanes, block.last(), selected};
  }

  // All tiles of the lane, the first in scratch_.rows already; returns the first of a later lane. The rows of the tile
  // after the present one are known, so that they can be fetched meanwhile.
  LatentTile run_lane(const Block& block, int lane, LatentWalk& walk, LatentTile tile, LaneState state) {
    const int queries = block.queries();
    std::fill_n(state.m, queries, kEmpty);
    std::fill_n(state.sum, queries, 0.0f);
    std::fill_n(state.o, int64_t{queries} * plan_.shape.padded, 0.0f);
    while (tile.count > 0 && tile.lane == lane) {
      const LatentTile after = walk.next(scratch_.ahead);
      run_tile(block, tile, after, state);
      std::swap(scratch_.rows, scratch_.ahead);
      tile = after;
    }
    return tile;
  }

  void run_tile(const Block& block, LatentTile tile, LatentTile after, LaneState state) {
    const Shape& shape = plan_.shape;
    const bool dense = plan_.args.selected == nullptr;
    // Rows before the tile see nothing of it. (A sparse block has one row, and its tile is all that row's.)
    const int first = dense ? static_cast<int>(std::max<int64_t>(0, tile.start - block.position(0))) : 0;
    const int begin = first * block.head_count;
    const int queries = block.queries() - begin;
    float* scores = scratch_.scores + begin * kAttentionTile;

    plan_.latent.load_tile(plan_.args.cache.entry, scratch_.rows, tile.count, shape.stride, scratch_.tile);
    plan_.latent.scores(scratch_.panel, block.queries(), shape.dims, scratch_.tile, shape.stride, tile.count,
                        {.rows = scratch_.ahead, .count = after.count, .bytes = plan_.args.cache.token_bytes},
                        scratch_.turned, scratch_.scores);
    for (int i = 0; i < queries; ++i) {
      const int64_t seen = block.position(first + i / block.head_count) + 1 - tile.start;
      scratch_.valid[i] = dense ? static_cast<int>(std::min<int64_t>(tile.count, seen)) : tile.count;
      scratch_.alpha[i] =
          plan_.ops.softmax(scores + i * kAttentionTile, scratch_.valid[i], state.m + begin + i, state.sum + begin + i);
    }
    plan_.latent.accumulate(scores, scratch_.valid, scratch_.alpha, queries, scratch_.tile, shape.stride, shape.padded,
                            state.o + int64_t{begin} * shape.padded);
  }

  void merge_top(int& depth, int queries) {
    --depth;
    merge_states(state(depth - 1), state(depth), queries);
  }

  void merge_states(LaneState a, LaneState b, int queries) const {
    const int64_t padded = plan_.shape.padded;
    for (int i = 0; i < queries; ++i) {
      if (b.m[i] == kEmpty) continue;
      if (a.m[i] == kEmpty) {
        a.m[i] = b.m[i];
        a.sum[i] = b.sum[i];
        std::copy_n(b.o + i * padded, padded, a.o + i * padded);
        continue;
      }
      plan_.ops.merge(a.m + i, a.sum + i, a.o + i * padded, b.m[i], b.sum[i], b.o + i * padded, plan_.shape.padded);
    }
  }

  void store_out(const Block& block, LaneState state) const {
    const LatentAttentionArgs& args = plan_.args;
    const int rank = args.cache.entry.dim;
    int64_t i = 0;
    for (int r = 0; r < block.row_count; ++r) {
      float* row = args.out + block.step_row(r) * args.out_stride + int64_t{block.first_head} * rank;
      for (int h = 0; h < block.head_count; ++h, ++i) {
        plan_.ops.finish(state.o + i * plan_.shape.padded, state.sum[i], rank, row + int64_t{h} * rank);
      }
    }
  }

  const Plan& plan_;
  ThreadScratch scratch_;
};

Block block_of(const Plan& plan, const SequenceSlice& slice, int head_block, int first_row, int row_count) {
  const int first_head = head_block * plan.heads_block;
  return {.slice = slice,
          .first_head = first_head,
          .head_count = std::min(plan.heads_block, plan.args.heads - first_head),
          .first_row = first_row,
          .row_count = row_count};
}

// What lies before a slice.
struct Before {
  int64_t units = 0;
  int64_t rows = 0;
  int64_t split_items = 0;
};

void run_unit(const Plan& plan, UnitRunner& runner, const SequenceSlice& slice, int64_t local, const Before& before) {
  const int head_blocks = plan.head_blocks();
  const int head_block = static_cast<int>(local % head_blocks);
  int part = static_cast<int>(local / head_blocks);
  if (plan.is_split(slice)) {
    runner.run_single_lane(block_of(plan, slice, head_block, 0, 1), part,
                           plan.partial(before.split_items + head_block, part));
    return;
  }
  const int lanes = plan.unmerged != nullptr ? plan.held.used(last_position(slice)) : 1;
  const int lane = part % lanes;
  part /= lanes;
  // Later rows see more of the sequence: heavy blocks first.
  const int first = (plan.row_blocks(slice) - 1 - part) * plan.rows_block;
  const Block block = block_of(plan, slice, head_block, first, std::min(plan.rows_block, slice.row_count - first));
  if (plan.unmerged == nullptr) return runner.run_block(block);
  runner.run_unmerged(block, plan.held.lane(lane), before.rows + first);
}

void run_units(Plan& plan, int thread) {
  UnitRunner runner(plan, thread);
  size_t index = 0;  // the slice of ascending unit numbers
  Before before;
  for (int64_t unit = plan.next.fetch_add(1); unit < plan.units; unit = plan.next.fetch_add(1)) {
    for (int64_t count = plan.unit_count(plan.slices[index]); unit >= before.units + count;
         count = plan.unit_count(plan.slices[++index])) {
      before.units += count;
      before.rows += std::max(0, plan.slices[index].row_count);
      if (plan.is_split(plan.slices[index])) before.split_items += plan.head_blocks();
    }
    run_unit(plan, runner, plan.slices[index], unit - before.units, before);
  }
}

// Every thread merges each threads-th of the split rows' head blocks.
void merge_split_rows(const Plan& plan, int thread, int threads) {
  UnitRunner runner(plan, thread);
  int64_t item = 0;
  for (const SequenceSlice& slice : plan.slices) {
    if (!plan.is_split(slice)) continue;
    for (int b = 0; b < plan.head_blocks(); ++b, ++item) {
      if (item % threads == thread) runner.merge_split(block_of(plan, slice, b, 0, 1), item);
    }
  }
}

// Cuts finer where threads would idle: single rows over lanes, then smaller blocks of heads. No bit changes.
void choose_split(Plan& plan, int threads) {
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

void run_attention(const LatentAttentionArgs& args, std::span<const SequenceSlice> slices, const LanePartials* unmerged,
                   std::span<std::byte> scratch, ComputePool& pool) {
  const PagedEntry& entry = args.cache.entry;
  BATON_CHECK(entry.kind == PagedKind::kLatent && args.heads > 0, "kind={} heads={}", static_cast<int>(entry.kind),
              args.heads);
  BATON_CHECK(scratch.size() >= latent_attention_scratch_bytes(args.heads, entry.dim, entry.rope_dim, pool.threads()),
              "scratch of {} bytes is too small", scratch.size());
  const Shape shape = Shape::of(entry.dim, entry.rope_dim);
  auto* base = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~uintptr_t{63});
  const int heads_block = heads_per_block(args.heads);
  Plan plan{.args = args,
            .slices = slices,
            .shape = shape,
            .ops = attention_ops(args.isa),
            .latent = latent_ops(args.isa),
            .heads_block = heads_block,
            .rows_block = args.selected != nullptr ? 1 : std::max(1, kBlockQueries / heads_block),
            .thread_base = base,
            .partials = base + pool.threads() * shape.thread_floats(),
            .unmerged = unmerged};
  if (unmerged != nullptr) plan.held = HeldLanes(args.cache.context, args.cache.block_size);
  plan.count_units();
  choose_split(plan, pool.threads());
  if (plan.units == 0) return;
  if (plan.units == 1) {
    run_units(plan, 0);
  } else {
    pool.run([&plan](int thread) { run_units(plan, thread); });
  }
  if (plan.split) pool.run([&](int thread) { merge_split_rows(plan, thread, pool.threads()); });
}

}  // namespace

size_t latent_attention_scratch_bytes(int heads, int rank, int rope_dim, int threads) {
  (void)heads;  // blocks of heads bound what a thread holds
  const Shape shape = Shape::of(rank, rope_dim);
  return static_cast<size_t>(threads * shape.thread_floats() + shape.partial_floats(threads)) * sizeof(float) + 64;
}

void latent_attention(const LatentAttentionArgs& args, std::span<const SequenceSlice> slices,
                      std::span<std::byte> scratch, ComputePool& pool) {
  run_attention(args, slices, nullptr, scratch, pool);
}

void latent_attention_lanes(const LatentAttentionArgs& args, std::span<const SequenceSlice> slices,
                            const LanePartials& partials, std::span<std::byte> scratch, ComputePool& pool) {
  BATON_CHECK(partials.heads == args.heads && partials.dim == args.cache.entry.dim, "heads={} dim={} of partials",
              partials.heads, partials.dim);
  run_attention(args, slices, &partials, scratch, pool);
}

}  // namespace baton::kernels
