// How a step's attention is cut into units of work, and how one unit runs. The arithmetic is in attention_ops.h.
#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/check.h"
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
int64_t kv_row_bytes(const PagedKvView& cache) {
  return entry_token_bytes({.kind = PagedKind::kKeysValues, .dim = cache.head_dim, .dtype = cache.dtype});
}

int padded_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }
int rows_per_block(int group) { return std::max(1, kMaxQueries / group); }
int queries_max(int group) { return std::max(kMaxQueries, group); }

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

int64_t last_position(const SequenceSlice& slice) { return slice.context_len + slice.row_count - 1; }

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

class UnitRunner {
 public:
  UnitRunner(const Plan& plan, int thread)
      : plan_(plan),
        scratch_(ThreadScratch::at(plan.thread_base + thread * ThreadScratch::floats(plan.queries, plan.padded),
                                   plan.queries, plan.padded)) {}

  void run_block(const Block& block) {
    if (block.group == 0) return;
    load_queries(block);
    const int queries = block.queries();
    const int lanes = lanes_used(block.last());
    int depth = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      run_lane(block, lane, state(depth++));
      for (int bits = lane; bits & 1; bits >>= 1) merge_top(depth, queries);
    }
    while (depth > 1) merge_top(depth, queries);
    store_out(block, state(0));
  }

  void run_single_lane(const Block& block, int lane, LaneState out) {
    if (block.group == 0) return;
    load_queries(block);
    run_lane(block, lane, out);
  }

  // row: of the block's first among those of the unmerged lanes.
  void run_unmerged(const Block& block, int lane, int64_t row) {
    if (block.group == 0 || lane >= lanes_used(block.last())) return;
    const LaneState from = state(0);
    run_single_lane(block, lane, from);
    const LanePartials& to = *plan_.unmerged;
    const int64_t floats = int64_t{block.group} * plan_.padded;
    for (int r = 0; r < block.row_count; ++r, ++row) {
      std::copy_n(from.m + r * block.group, block.group, to.maxima(row, lane) + block.first_head);
      std::copy_n(from.sum + r * block.group, block.group, to.sums(row, lane) + block.first_head);
      std::copy_n(from.o + r * floats, floats, to.outputs(row, lane) + int64_t{block.first_head} * plan_.padded);
    }
  }

  // Merges the lanes of a split row, in the tree's order, into the first.
  void merge_split(const Block& block, int64_t item) {
    if (block.group == 0) return;
    const int lanes = lanes_used(block.position(0));
    for (int step = 1; step < lanes; step *= 2) {
      for (int lane = 0; lane + step < lanes; lane += 2 * step) {
        merge_states(plan_.partial(item, lane), plan_.partial(item, lane + step), block.group);
      }
    }
    store_out(block, plan_.partial(item, 0));
  }

 private:
  LaneState state(int depth) const {
    return ThreadScratch::state(scratch_.states + depth * ThreadScratch::state_floats(plan_.queries, plan_.padded),
                                plan_.queries);
  }

  void load_queries(const Block& block) {
    const AttentionArgs& args = plan_.args;
    const int head_dim = args.cache.head_dim;
    float* q = scratch_.q;
    for (int r = 0; r < block.row_count; ++r) {
      const float* row = args.q + block.step_row(r) * args.q_stride;
      for (int g = 0; g < block.group; ++g, q += plan_.padded) {
        plan_.ops.scale_row(row + (block.first_head + g) * head_dim, args.scale, head_dim, q);
      }
    }
  }

  void run_lane(const Block& block, int lane, LaneState state) {
    const int queries = block.queries();
    std::fill_n(state.m, queries, kEmpty);
    std::fill_n(state.sum, queries, 0.0f);
    std::fill_n(state.o, static_cast<int64_t>(queries) * plan_.padded, 0.0f);
    const int64_t last = block.last();
    for (int64_t span = lane; span * kAttentionSpan <= last; span += kAttentionLanes) {
      for (int i = 0; i < kSpanTiles; ++i) {
        const int64_t start = span * kAttentionSpan + static_cast<int64_t>(i) * kAttentionTile;
        if (start > last) return;
        run_tile(block, start, last, state);
      }
    }
  }

  void run_tile(const Block& block, int64_t start, int64_t last, LaneState state) {
    const PagedKvView& cache = plan_.args.cache;
    const int count = static_cast<int>(std::min<int64_t>(kAttentionTile, last + 1 - start));
    // Rows before the tile see nothing of it.
    const int first = static_cast<int>(std::max<int64_t>(0, start - block.position(0)));
    const int begin = first * block.group;
    const int queries = (block.row_count - first) * block.group;
    float* scores = scratch_.scores;
    // One row, or all rows beyond the tile: every query sees the same positions.
    const bool direct = queries <= plan_.ops.direct_queries && block.position(first) + 1 >= start + count;

    find_rows(block, 0, start, count, scratch_.keys_at);
    find_rows(block, 1, start, count, scratch_.values_at);
    if (direct) {
      plan_.ops.scores_direct(scratch_.q + begin * plan_.padded, queries, plan_.padded, cache.head_dim,
                              scratch_.keys_at, scratch_.values_at, count, cache.dtype, scores);
    } else {
      plan_.ops.load_keys(scratch_.keys_at, count, cache.dtype, cache.head_dim, scratch_.keys);
      plan_.ops.scores(scratch_.q + begin * plan_.padded, queries, plan_.padded, cache.head_dim, scratch_.keys, count,
                       scores);
    }
    for (int i = 0; i < queries; ++i) {
      const int64_t position = block.position(first + i / block.group);
      scratch_.valid[i] = static_cast<int>(std::min<int64_t>(kAttentionTile, position + 1 - start));
      scratch_.alpha[i] =
          plan_.ops.softmax(scores + i * kAttentionTile, scratch_.valid[i], state.m + begin + i, state.sum + begin + i);
    }
    float* o = state.o + static_cast<int64_t>(begin) * plan_.padded;
    if (direct) {
      const bool more = next_tile_is_full(start, last);
      if (more) find_rows(block, 0, start + kAttentionTile, kAttentionTile, scratch_.ahead);
      plan_.ops.accumulate_direct(scores, count, scratch_.alpha, queries, scratch_.values_at,
                                  more ? scratch_.ahead : nullptr, cache.dtype, cache.head_dim, plan_.padded, o);
      return;
    }
    plan_.ops.load_values(scratch_.values_at, count, cache.dtype, cache.head_dim, plan_.padded, scratch_.values);
    plan_.ops.accumulate(scores, scratch_.valid, scratch_.alpha, queries, scratch_.values, plan_.padded, o);
  }

  static bool next_tile_is_full(int64_t start, int64_t last) {
    return (start + kAttentionTile) % kAttentionSpan != 0 && start + 2 * kAttentionTile <= last + 1;
  }

  // The addresses of `count` keys or values from position `start` on.
  void find_rows(const Block& block, int kv, int64_t start, int count, const std::byte** rows) {
    const PagedKvView& cache = plan_.args.cache;
    const int64_t row_bytes = kv_row_bytes(cache);
    int64_t index = start / cache.block_size;
    int64_t offset = start % cache.block_size;
    for (int i = 0; i < count; ++index, offset = 0) {
      const std::byte* base = cache.at_place(block.slice.block_table, index, plan_.args.layer, kv, block.kv_head);
      const int end = static_cast<int>(std::min<int64_t>(count, i + cache.block_size - offset));
      for (; i < end; ++i, ++offset) rows[i] = base + offset * row_bytes;
    }
  }

  void merge_top(int& depth, int queries) {
    --depth;
    merge_states(state(depth - 1), state(depth), queries);
  }

  void merge_states(LaneState a, LaneState b, int queries) const {
    const int64_t padded = plan_.padded;
    for (int i = 0; i < queries; ++i) {
      if (b.m[i] == kEmpty) continue;
      if (a.m[i] == kEmpty) {
        a.m[i] = b.m[i];
        a.sum[i] = b.sum[i];
        std::copy_n(b.o + i * padded, padded, a.o + i * padded);
        continue;
      }
      plan_.ops.merge(a.m + i, a.sum + i, a.o + i * padded, b.m[i], b.sum[i], b.o + i * padded, plan_.padded);
    }
  }

  void store_out(const Block& block, LaneState state) const {
    const AttentionArgs& args = plan_.args;
    int64_t i = 0;
    for (int r = 0; r < block.row_count; ++r) {
      float* row = args.out + block.step_row(r) * args.out_stride;
      for (int g = 0; g < block.group; ++g, ++i) {
        plan_.ops.finish(state.o + i * plan_.padded, state.sum[i], args.cache.head_dim,
                         row + (block.first_head + g) * args.cache.head_dim);
      }
    }
  }

  const Plan& plan_;
  ThreadScratch scratch_;
};

void run_unit(const Plan& plan, UnitRunner& runner, const UnitCursor& cursor, const SequenceSlice& slice,
              int64_t local) {
  const int kv_heads = plan.args.cache.kv_heads;
  if (plan.is_split(slice)) {
    const int lanes = lanes_used(last_position(slice));
    const int head = static_cast<int>(local / lanes);
    const int lane = static_cast<int>(local % lanes);
    return runner.run_single_lane(plan.block(slice, head, 0), lane,
                                  plan.partial(cursor.split_items_before() + head, lane));
  }
  // Later blocks see more of the sequence: heavy ones first.
  const auto reversed = [&](int64_t index) { return plan.row_blocks(slice) - 1 - static_cast<int>(index); };
  const int head = static_cast<int>(local % kv_heads);
  if (plan.unmerged == nullptr) return runner.run_block(plan.block(slice, head, reversed(local / kv_heads)));
  const int lanes = plan.held.used(last_position(slice));
  const Block block = plan.block(slice, head, reversed(local / kv_heads / lanes));
  runner.run_unmerged(block, plan.held.lane(static_cast<int>(local / kv_heads % lanes)),
                      cursor.rows_before() + block.first_row);
}

void run_units(Plan& plan, int thread) {
  UnitCursor cursor(plan);
  UnitRunner runner(plan, thread);
  for (int64_t unit = plan.next.fetch_add(1); unit < plan.units; unit = plan.next.fetch_add(1)) {
    const SequenceSlice& slice = cursor.seek(unit);
    run_unit(plan, runner, cursor, slice, cursor.unit_in_slice(unit));
  }
}

void merge_split_rows(const Plan& plan) {
  UnitRunner runner(plan, 0);
  int64_t item = 0;
  for (const SequenceSlice& slice : plan.slices) {
    if (!plan.is_split(slice)) continue;
    for (int head = 0; head < plan.args.cache.kv_heads; ++head) runner.merge_split(plan.block(slice, head, 0), item++);
  }
}

int64_t partial_floats(int group, int padded, int threads) {
  return threads == 1 ? 0
                      : static_cast<int64_t>(kSplitUnitsPerThread) * threads * kAttentionLanes *
                            ThreadScratch::state_floats(group, padded);
}

// Splitting single rows over lanes changes no bit, only who computes what.
void choose_split(Plan& plan, int threads) {
  if (threads == 1 || plan.units > static_cast<int64_t>(kSplitUnitsPerThread) * threads) return;
  plan.split = true;
  plan.count_units();
}

void write_rows(const PagedKvView& cache, int layer, const SequenceSlice& slice, int first, int last, int kv,
                const float* source, int64_t stride, const AttentionOps& ops) {
  const int64_t row_bytes = kv_row_bytes(cache);
  for (int r = first; r < last; ++r) {
    const int64_t position = slice.context_len + r;
    if (!cache.context.holds(position, cache.block_size)) continue;
    const int64_t block = cache.context.block_number(slice.block_table, position / cache.block_size);
    const int64_t offset = position % cache.block_size * row_bytes;
    const float* row = source + (slice.row_begin + r) * stride;
    for (int h = 0; h < cache.kv_heads; ++h) {
      ops.store_row(row + h * cache.head_dim, cache.head_dim, cache.dtype, cache.at(block, layer, kv, h) + offset);
    }
  }
}

// Query heads of the largest group.
int largest_group(const AttentionArgs& args) {
  const int kv_heads = args.cache.kv_heads;
  if (args.head_borders == nullptr) {
    BATON_CHECK(args.heads % kv_heads == 0, "heads={} kv_heads={}", args.heads, kv_heads);
    return args.heads / kv_heads;
  }
  BATON_CHECK(args.head_borders[0] == 0 && args.head_borders[kv_heads] == args.heads, "heads={}", args.heads);
  int largest = 1;
  for (int i = 0; i < kv_heads; ++i) largest = std::max(largest, args.head_borders[i + 1] - args.head_borders[i]);
  return largest;
}

void run_attention(const AttentionArgs& args, std::span<const SequenceSlice> slices, const LanePartials* unmerged,
                   std::span<std::byte> scratch, ComputePool& pool) {
  const PagedKvView& cache = args.cache;
  const int group = largest_group(args);
  BATON_CHECK(scratch.size() >= attention_scratch_bytes(group, 1, cache.head_dim, pool.threads()),
              "scratch of {} bytes is too small", scratch.size());
  const int padded = padded_dim(cache.head_dim);
  const int queries = queries_max(group);
  auto* base = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~uintptr_t{63});
  Plan plan{.args = args,
            .slices = slices,
            .ops = attention_ops(args.isa),
            .group = group,
            .padded = padded,
            .queries = queries,
            .rows_block = rows_per_block(group),
            .thread_base = base,
            .partials = base + pool.threads() * ThreadScratch::floats(queries, padded),
            .unmerged = unmerged};
  if (unmerged != nullptr) plan.held = HeldLanes(cache.context, cache.block_size);
  plan.count_units();
  if (unmerged == nullptr) choose_split(plan, pool.threads());
  if (plan.units == 0) return;
  if (plan.units == 1) {
    run_units(plan, 0);
  } else {
    pool.run([&plan](int thread) { run_units(plan, thread); });
  }
  if (plan.split) merge_split_rows(plan);
}

}  // namespace

const AttentionOps& attention_ops(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return kAttentionAvx512;
    case tensor::Isa::kAvx2:
      return kAttentionAvx2;
    case tensor::Isa::kPortable:
      break;
  }
  return kAttentionPortable;
}

void write_kv(const PagedKvView& cache, int layer, std::span<const SequenceSlice> slices, const float* k,
              int64_t k_stride, const float* v, int64_t v_stride, tensor::Isa isa, ComputePool& pool) {
  const AttentionOps& ops = attention_ops(isa);
  int64_t rows = 0;
  for (const SequenceSlice& slice : slices) rows += slice.row_count;
  pool.parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
    int64_t base = 0;
    for (const SequenceSlice& slice : slices) {
      const int first = static_cast<int>(std::clamp<int64_t>(begin - base, 0, slice.row_count));
      const int last = static_cast<int>(std::clamp<int64_t>(end - base, 0, slice.row_count));
      write_rows(cache, layer, slice, first, last, 0, k, k_stride, ops);
      write_rows(cache, layer, slice, first, last, 1, v, v_stride, ops);
      base += slice.row_count;
      if (base >= end) return;
    }
  });
}

size_t attention_scratch_bytes(int heads, int kv_heads, int head_dim, int threads) {
  const int group = heads / kv_heads;
  const int padded = padded_dim(head_dim);
  const int64_t floats =
      threads * ThreadScratch::floats(queries_max(group), padded) + partial_floats(group, padded, threads);
  return static_cast<size_t>(floats) * sizeof(float) + 64;
}

void paged_attention(const AttentionArgs& args, std::span<const SequenceSlice> slices, std::span<std::byte> scratch,
                     ComputePool& pool) {
  run_attention(args, slices, nullptr, scratch, pool);
}

void paged_attention_lanes(const AttentionArgs& args, std::span<const SequenceSlice> slices,
                           const LanePartials& partials, std::span<std::byte> scratch, ComputePool& pool) {
  BATON_CHECK(partials.heads == args.heads && partials.dim == args.cache.head_dim, "heads={} dim={} of partials",
              partials.heads, partials.dim);
  run_attention(args, slices, &partials, scratch, pool);
}

}  // namespace baton::kernels
