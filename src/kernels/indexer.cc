// Scoring: a unit is (slice, rows of a block, positions of a chunk); a tile of keys is read and turned once for the
// rows of its unit. Of one row the queries are turned instead, once a unit: products then have heads in their lanes.
// Either way a product is one chain over the dimensions, and a score one over the heads.
//
// Sketch, 64 heads of 128 and 128 keys: a row is 65,000 multiply-adds of 16 lanes, reading and turning the keys 6,000
// cycles. 16 heads: 16,000; there the turning is a third.
#include "kernels/indexer.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/indexer_rows.h"
#include "kernels/latent_ops.h"

namespace baton::kernels {
namespace {

constexpr int kRowsPerBlock = 8;
constexpr int64_t kChunk = 1024;                // positions of a unit, a multiple of the tile
constexpr int64_t kHeldChunk = kAttentionSpan;  // of the positions that a context rank holds, all in one block
constexpr int kPointerFloats = kAttentionTile * static_cast<int>(sizeof(void*) / sizeof(float));

int key_stride(int dim) { return tile_stride({.kind = PagedKind::kIndexKeys, .dim = dim}); }

int key_dim(const IndexerArgs& args) { return args.pool > 1 ? args.cache.entry.dim / 2 : args.cache.entry.dim; }

// Products of a row's heads with a tile, as LatentOps::scores has them, and its scratch.
constexpr int64_t kProductFloats = int64_t{kTurnedPanel} * kAttentionTile;

int64_t thread_floats(int dim) {
  const int64_t floats = 2 * kPointerFloats + int64_t{kAttentionTile} * key_stride(dim) + int64_t{kAttentionTile} * dim;
  return (floats + 15) / 16 * 16 + 2 * kProductFloats;
}

struct ScorePlan {
  const IndexerArgs& args;
  std::span<const SequenceSlice> slices;
  const LatentOps& ops;
  float* scores;
  int64_t scores_stride;
  float* thread_base;
  bool held = false;  // the positions that this rank holds, close together
  int64_t units = 0;
  std::atomic<int64_t> next{0};

  static int64_t row_blocks(const SequenceSlice& slice) {
    return (slice.row_count + kRowsPerBlock - 1) / kRowsPerBlock;
  }
  int64_t chunks(const SequenceSlice& slice) const {
    const int64_t positions = slice.context_len + slice.row_count;
    if (!held) return (positions + kChunk - 1) / kChunk;
    return (HeldPositions(args.cache).count(positions) + kHeldChunk - 1) / kHeldChunk;
  }
  int64_t unit_count(const SequenceSlice& slice) const {
    return slice.row_count <= 0 ? 0 : row_blocks(slice) * chunks(slice);
  }
};

struct ScoreScratch {
  const std::byte** rows;   // [tile]
  const std::byte** ahead;  // [tile]
  float* tile;              // [tile][key_stride]
  float* panels;            // [2][dim][64]
  float* products;          // [64][tile]
  float* turned;            // [tile][64]
};

void find_rows(const TokenCacheView& cache, const SequenceSlice& slice, int64_t start, int count,
               const std::byte** rows) {
  int64_t index = start / cache.block_size;
  int64_t offset = start % cache.block_size;
  for (int i = 0; i < count; ++index, offset = 0) {
    const std::byte* block = cache.block_at(slice.block_table, index);
    const int end = static_cast<int>(std::min<int64_t>(count, i + cache.block_size - offset));
    for (; i < end; ++i, ++offset) rows[i] = block + offset * cache.token_bytes;
  }
}

// The keys of scratch.rows into the tile, pooled; returns how many there are.
int load_keys(const ScorePlan& plan, int count, const ScoreScratch& scratch) {
  const IndexerArgs& args = plan.args;
  const int stride = key_stride(args.cache.entry.dim);
  plan.ops.load_tile(args.cache.entry, scratch.rows, count, stride, scratch.tile);
  if (args.pool == 1) return count;
  plan.ops.pool_keys(scratch.tile, count / args.pool, args.pool, key_dim(args), stride, args.pool_bias);
  return count / args.pool;
}

// Whether the queries of one row are turned: few heads would leave lanes empty, many do not fit the panels.
bool turns_queries(const IndexerArgs& args) {
  return args.heads >= 8 && args.heads <= 2 * kTurnedPanel && key_dim(args) % 16 == 0;
}

// Rows [first, last) of the slice against the tile from `start` on; with pools, against the whole ones in it. scores:
// of the slice's first row and the tile's first position.
void score_tile(const ScorePlan& plan, const SequenceSlice& slice, float* scores, int first, int last, int64_t start,
                int count, const ScoreScratch& scratch) {
  const IndexerArgs& args = plan.args;
  const int dim = key_dim(args);
  const int stride = key_stride(args.cache.entry.dim);
  find_rows(args.cache, slice, start, count, scratch.rows);
  count = load_keys(plan, count, scratch);
  plan.ops.turn(scratch.tile, count, dim, stride, scratch.panels);
  for (int r = first; r < last; ++r) {
    const int64_t seen = std::min<int64_t>(count, (slice.context_len + r + 1 - start) / args.pool);
    if (seen <= 0) continue;
    const int64_t row = slice.row_begin + r;
    plan.ops.index_scores(args.q + row * args.q_stride, args.weights + row * args.weights_stride, args.heads, dim,
                          scratch.panels, static_cast<int>(seen), scores + r * plan.scores_stride);
  }
}

// Row r of the slice against positions [begin, end). scores: of the row, at `begin`.
void score_row(const ScorePlan& plan, const SequenceSlice& slice, int r, int64_t begin, int64_t end, float* scores,
               ScoreScratch scratch) {
  const IndexerArgs& args = plan.args;
  const int dim = key_dim(args), stride = key_stride(args.cache.entry.dim);
  const int64_t row = slice.row_begin + r;
  const auto count_at = [&](int64_t start) {
    return static_cast<int>(std::clamp<int64_t>(end - start, 0, kAttentionTile));
  };
  plan.ops.turn(args.q + row * args.q_stride, args.heads, dim, dim, scratch.panels);
  find_rows(args.cache, slice, begin, count_at(begin), scratch.rows);
  for (int64_t start = begin; start < end; start += kAttentionTile) {
    RowsAhead ahead{.rows = scratch.ahead, .count = count_at(start + kAttentionTile), .bytes = args.cache.token_bytes};
    find_rows(args.cache, slice, start + kAttentionTile, ahead.count, scratch.ahead);
    const int keys = load_keys(plan, count_at(start), scratch);
    for (int head = 0; head < args.heads && keys > 0; head += kTurnedPanel) {
      const int heads = std::min(kTurnedPanel, args.heads - head);
      plan.ops.scores(scratch.panels + int64_t{head} * dim, heads, dim, scratch.tile, stride, keys, ahead,
                      scratch.turned, scratch.products);
      plan.ops.add_index_heads(scratch.products, args.weights + row * args.weights_stride + head, heads, head == 0,
                               keys, scores + (start - begin) / args.pool);
      ahead.count = 0;
    }
    std::swap(scratch.rows, scratch.ahead);
  }
}

// scores: of the slice's first row.
void score_unit(const ScorePlan& plan, const SequenceSlice& slice, float* scores, int64_t local,
                const ScoreScratch& scratch) {
  const int64_t chunks = plan.chunks(slice);
  const int first = static_cast<int>(local / chunks) * kRowsPerBlock;
  const int last = std::min(slice.row_count, first + kRowsPerBlock);
  const int64_t size = plan.held ? kHeldChunk : kChunk;
  const int64_t column = local % chunks * size;  // of the row, in positions
  const int64_t begin = plan.held ? HeldPositions(plan.args.cache).position(column) : column;
  const int64_t end = std::min(begin + size, slice.context_len + last);
  if (last - first == 1 && turns_queries(plan.args)) {
    float* at = scores + first * plan.scores_stride + column / plan.args.pool;
    return score_row(plan, slice, first, begin, end, at, scratch);
  }
  for (int64_t start = begin; start < end; start += kAttentionTile) {
    const int count = static_cast<int>(std::min<int64_t>(kAttentionTile, end - start));
    float* at = scores + (column + start - begin) / plan.args.pool;
    score_tile(plan, slice, at, first, last, start, count, scratch);
  }
}

void score_units(ScorePlan& plan, int thread) {
  const int dim = plan.args.cache.entry.dim;
  float* base = plan.thread_base + thread * thread_floats(dim);
  ScoreScratch scratch;
  scratch.rows = reinterpret_cast<const std::byte**>(base);
  scratch.ahead = reinterpret_cast<const std::byte**>(base + kPointerFloats);
  scratch.tile = base + 2 * kPointerFloats;
  scratch.panels = scratch.tile + int64_t{kAttentionTile} * key_stride(dim);
  scratch.products = base + thread_floats(dim) - 2 * kProductFloats;
  scratch.turned = scratch.products + kProductFloats;
  size_t index = 0;
  int64_t first = 0;  // its first unit
  int64_t rows = 0;   // before it
  for (int64_t unit = plan.next.fetch_add(1); unit < plan.units; unit = plan.next.fetch_add(1)) {
    while (unit >= first + plan.unit_count(plan.slices[index])) {
      first += plan.unit_count(plan.slices[index]);
      rows += std::max(0, plan.slices[index++].row_count);
    }
    score_unit(plan, plan.slices[index], plan.scores + rows * plan.scores_stride, unit - first, scratch);
  }
}

bool is_pool(const IndexerArgs& args) {
  if (args.pool == 1) return true;
  return args.pool > 1 && args.pool <= 16 && (args.pool & (args.pool - 1)) == 0 && args.cache.entry.dim % 2 == 0 &&
         args.pool_bias != nullptr;
}

void score(const IndexerArgs& args, std::span<const SequenceSlice> slices, bool held, float* scores,
           int64_t scores_stride, std::span<std::byte> scratch, ComputePool& pool) {
  const PagedEntry& entry = args.cache.entry;
  BATON_CHECK(entry.kind == PagedKind::kIndexKeys && args.heads > 0, "kind={} heads={}", static_cast<int>(entry.kind),
              args.heads);
  BATON_CHECK(is_pool(args), "pool={} dim={}", args.pool, entry.dim);
  BATON_CHECK(scratch.size() >= index_scores_scratch_bytes(entry.dim, pool.threads()),
              "scratch of {} bytes is too small", scratch.size());
  ScorePlan plan{.args = args,
                 .slices = slices,
                 .ops = latent_ops(args.isa),
                 .scores = scores,
                 .scores_stride = scores_stride,
                 .thread_base = aligned_floats(scratch),
                 .held = held};
  for (const SequenceSlice& slice : slices) plan.units += plan.unit_count(slice);
  if (plan.units == 0) return;
  if (plan.units == 1) return score_units(plan, 0);
  pool.run([&plan](int thread) { score_units(plan, thread); });
}

}  // namespace

size_t index_scores_scratch_bytes(int dim, int threads) {
  return static_cast<size_t>(threads * thread_floats(dim)) * sizeof(float) + 64;
}

void index_scores(const IndexerArgs& args, std::span<const SequenceSlice> slices, float* scores, int64_t scores_stride,
                  std::span<std::byte> scratch, ComputePool& pool) {
  score(args, slices, false, scores, scores_stride, scratch, pool);
}

void index_scores_held(const IndexerArgs& args, std::span<const SequenceSlice> slices, float* scores,
                       int64_t scores_stride, std::span<std::byte> scratch, ComputePool& pool) {
  score(args, slices, true, scores, scores_stride, scratch, pool);
}

}  // namespace baton::kernels
