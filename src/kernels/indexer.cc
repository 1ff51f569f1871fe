// Scoring: a unit is (slice, rows of a block, positions of a chunk); a tile of keys is read and turned once for the
// rows of its unit. Sketch, AVX-512, 64 heads of 128: a row and 128 keys cost 65,000 cycles, reading and turning 6,000.
#include "kernels/indexer.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/latent_ops.h"

namespace baton::kernels {
namespace {

constexpr int kRowsPerBlock = 8;
constexpr int64_t kChunk = 1024;           // positions of a unit, a multiple of the tile
constexpr int64_t kGroupFloats = 4 << 20;  // scores held at once: 16 MiB, or one row a thread
constexpr int64_t kGroupRows = 256;
constexpr int kPointerFloats = kAttentionTile * static_cast<int>(sizeof(void*) / sizeof(float));

int key_stride(int dim) { return tile_stride({.kind = PagedKind::kIndexKeys, .dim = dim}); }

int64_t thread_floats(int dim) {
  const int64_t floats = kPointerFloats + int64_t{kAttentionTile} * key_stride(dim) + int64_t{kAttentionTile} * dim;
  return (floats + 15) / 16 * 16;
}

float* aligned(std::span<std::byte> scratch) {
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~uintptr_t{63});
}

struct ScorePlan {
  const IndexerArgs& args;
  std::span<const SequenceSlice> slices;
  const LatentOps& ops;
  int64_t first_row;
  float* scores;
  int64_t scores_stride;
  float* thread_base;
  int64_t units = 0;
  std::atomic<int64_t> next{0};

  static int64_t row_blocks(const SequenceSlice& slice) {
    return (slice.row_count + kRowsPerBlock - 1) / kRowsPerBlock;
  }
  static int64_t chunks(const SequenceSlice& slice) {
    return (slice.context_len + slice.row_count + kChunk - 1) / kChunk;
  }
  static int64_t unit_count(const SequenceSlice& slice) {
    return slice.row_count <= 0 ? 0 : row_blocks(slice) * chunks(slice);
  }
};

struct ScoreScratch {
  const std::byte** rows;  // [tile]
  float* tile;             // [tile][key_stride]
  float* panels;           // [2][dim][64]
};

void find_rows(const TokenCacheView& cache, const SequenceSlice& slice, int64_t start, int count,
               const std::byte** rows) {
  int64_t index = start / cache.block_size;
  int64_t offset = start % cache.block_size;
  for (int i = 0; i < count; ++index, offset = 0) {
    const std::byte* block = cache.block(slice.block_table[index]);
    const int end = static_cast<int>(std::min<int64_t>(count, i + cache.block_size - offset));
    for (; i < end; ++i, ++offset) rows[i] = block + offset * cache.token_bytes;
  }
}

// Rows [first, last) of the slice against the tile from `start` on.
void score_tile(const ScorePlan& plan, const SequenceSlice& slice, int first, int last, int64_t start, int count,
                const ScoreScratch& scratch) {
  const IndexerArgs& args = plan.args;
  const int dim = args.cache.entry.dim;
  find_rows(args.cache, slice, start, count, scratch.rows);
  plan.ops.load_tile(args.cache.entry, scratch.rows, count, key_stride(dim), scratch.tile);
  plan.ops.turn(scratch.tile, count, dim, key_stride(dim), scratch.panels);
  for (int r = first; r < last; ++r) {
    const int64_t seen = std::min<int64_t>(count, slice.context_len + r + 1 - start);
    if (seen <= 0) continue;
    const int64_t row = slice.row_begin + r;
    plan.ops.index_scores(args.q + row * args.q_stride, args.weights + row * args.weights_stride, args.heads, dim,
                          scratch.panels, static_cast<int>(seen),
                          plan.scores + (row - plan.first_row) * plan.scores_stride + start);
  }
}

void score_unit(const ScorePlan& plan, const SequenceSlice& slice, int64_t local, const ScoreScratch& scratch) {
  const int64_t chunks = ScorePlan::chunks(slice);
  const int first = static_cast<int>(local / chunks) * kRowsPerBlock;
  const int last = std::min(slice.row_count, first + kRowsPerBlock);
  const int64_t begin = local % chunks * kChunk;
  const int64_t end = std::min(begin + kChunk, slice.context_len + last);
  for (int64_t start = begin; start < end; start += kAttentionTile) {
    const int count = static_cast<int>(std::min<int64_t>(kAttentionTile, end - start));
    score_tile(plan, slice, first, last, start, count, scratch);
  }
}

void score_units(ScorePlan& plan, int thread) {
  const int dim = plan.args.cache.entry.dim;
  float* base = plan.thread_base + thread * thread_floats(dim);
  ScoreScratch scratch;
  scratch.rows = reinterpret_cast<const std::byte**>(base);
  scratch.tile = base + kPointerFloats;
  scratch.panels = scratch.tile + int64_t{kAttentionTile} * key_stride(dim);
  size_t index = 0;
  int64_t first = 0;
  for (int64_t unit = plan.next.fetch_add(1); unit < plan.units; unit = plan.next.fetch_add(1)) {
    while (unit >= first + ScorePlan::unit_count(plan.slices[index])) {
      first += ScorePlan::unit_count(plan.slices[index++]);
    }
    score_unit(plan, plan.slices[index], unit - first, scratch);
  }
}

// Walks the rows of a step in groups: calls group(slices of the group, first row, rows) with at most rows_max rows that
// lie side by side in the step, of one slice each.
template <typename Group>
void for_row_groups(const SequenceSlice& slice, int64_t rows_max, Group group) {
  for (int64_t r = 0; r < slice.row_count; r += rows_max) {
    SequenceSlice part = slice;
    part.context_len += r;
    part.row_begin += static_cast<int>(r);
    part.row_count = static_cast<int>(std::min<int64_t>(rows_max, slice.row_count - r));
    group(part);
  }
}

int64_t group_rows(int64_t max_positions, int threads) {
  return std::clamp<int64_t>(kGroupFloats / std::max<int64_t>(1, max_positions), threads, kGroupRows);
}

void select_all(const SelectArgs& args, int64_t row, int64_t count) {
  int32_t* to = args.selected + row * args.selected_stride;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int32_t>(i);
  args.selected_count[row] = static_cast<int32_t>(count);
}

}  // namespace

size_t index_scores_scratch_bytes(int dim, int threads) {
  return static_cast<size_t>(threads * thread_floats(dim)) * sizeof(float) + 64;
}

void index_scores(const IndexerArgs& args, std::span<const SequenceSlice> slices, int64_t first_row, float* scores,
                  int64_t scores_stride, std::span<std::byte> scratch, ComputePool& pool) {
  const PagedEntry& entry = args.cache.entry;
  BATON_CHECK(entry.kind == PagedKind::kIndexKeys && args.heads > 0, "kind={} heads={}", static_cast<int>(entry.kind),
              args.heads);
  BATON_CHECK(scratch.size() >= index_scores_scratch_bytes(entry.dim, pool.threads()),
              "scratch of {} bytes is too small", scratch.size());
  ScorePlan plan{.args = args,
                 .slices = slices,
                 .ops = latent_ops(args.isa),
                 .first_row = first_row,
                 .scores = scores,
                 .scores_stride = scores_stride,
                 .thread_base = aligned(scratch)};
  for (const SequenceSlice& slice : slices) plan.units += ScorePlan::unit_count(slice);
  if (plan.units == 0) return;
  if (plan.units == 1) return score_units(plan, 0);
  pool.run([&plan](int thread) { score_units(plan, thread); });
}

size_t index_select_scratch_bytes(int dim, int64_t max_positions, int threads) {
  return index_scores_scratch_bytes(dim, threads) + 64 +
         static_cast<size_t>(group_rows(max_positions, threads) * max_positions) * sizeof(float);
}

void index_select(const SelectArgs& args, std::span<const SequenceSlice> slices, int64_t max_positions,
                  std::span<std::byte> scratch, ComputePool& pool) {
  const int dim = args.indexer.cache.entry.dim;
  BATON_CHECK(args.top_k > 0 && args.selected_stride >= args.top_k, "top_k={} stride={}", args.top_k,
              args.selected_stride);
  BATON_CHECK(scratch.size() >= index_select_scratch_bytes(dim, max_positions, pool.threads()),
              "scratch of {} bytes is too small", scratch.size());
  const auto own = scratch.first(index_scores_scratch_bytes(dim, pool.threads()));
  float* scores = aligned(scratch.subspan(own.size()));
  const int64_t rows_max = group_rows(max_positions, pool.threads());
  for (const SequenceSlice& slice : slices) {
    BATON_CHECK(slice.context_len + slice.row_count <= max_positions, "{} positions, room for {}",
                slice.context_len + slice.row_count, max_positions);
    // Rows that see at most top_k positions come first.
    const int64_t unscored = std::clamp<int64_t>(args.top_k - slice.context_len, 0, slice.row_count);
    for (int64_t r = 0; r < unscored; ++r) select_all(args, slice.row_begin + r, slice.context_len + r + 1);
    SequenceSlice rest = slice;
    rest.context_len += unscored;
    rest.row_begin += static_cast<int>(unscored);
    rest.row_count -= static_cast<int>(unscored);
    for_row_groups(rest, rows_max, [&](const SequenceSlice& part) {
      index_scores(args.indexer, {&part, 1}, part.row_begin, scores, max_positions, own, pool);
      pool.parallel_for(part.row_count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t row = part.row_begin + r;
          args.selected_count[row] = select_top_k(scores + r * max_positions, part.context_len + r + 1, args.top_k,
                                                  args.selected + row * args.selected_stride);
        }
      });
    });
  }
}

}  // namespace baton::kernels
