// Scoring: a unit is (slice, rows of a block, positions of a chunk); a tile of keys is read and turned once for the
// rows of its unit. Sketch, AVX-512, 64 heads of 128: a row and 128 keys cost 65,000 cycles, reading and turning 6,000.
#include "kernels/indexer.h"

#include <algorithm>
#include <array>
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

int key_dim(const IndexerArgs& args) { return args.pool > 1 ? args.cache.entry.dim / 2 : args.cache.entry.dim; }

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

// Rows [first, last) of the slice against the tile from `start` on; with pools, against the whole ones in it.
void score_tile(const ScorePlan& plan, const SequenceSlice& slice, float* scores, int first, int last, int64_t start,
                int count, const ScoreScratch& scratch) {
  const IndexerArgs& args = plan.args;
  const int dim = key_dim(args);
  const int stride = key_stride(args.cache.entry.dim);
  find_rows(args.cache, slice, start, count, scratch.rows);
  plan.ops.load_tile(args.cache.entry, scratch.rows, count, stride, scratch.tile);
  if (args.pool > 1) {
    count /= args.pool;
    plan.ops.pool_keys(scratch.tile, count, args.pool, dim, stride, args.pool_bias);
  }
  plan.ops.turn(scratch.tile, count, dim, stride, scratch.panels);
  for (int r = first; r < last; ++r) {
    const int64_t seen = std::min<int64_t>(count, (slice.context_len + r + 1 - start) / args.pool);
    if (seen <= 0) continue;
    const int64_t row = slice.row_begin + r;
    plan.ops.index_scores(args.q + row * args.q_stride, args.weights + row * args.weights_stride, args.heads, dim,
                          scratch.panels, static_cast<int>(seen), scores + r * plan.scores_stride + start / args.pool);
  }
}

// scores: of the slice's first row.
void score_unit(const ScorePlan& plan, const SequenceSlice& slice, float* scores, int64_t local,
                const ScoreScratch& scratch) {
  const int64_t chunks = ScorePlan::chunks(slice);
  const int first = static_cast<int>(local / chunks) * kRowsPerBlock;
  const int last = std::min(slice.row_count, first + kRowsPerBlock);
  const int64_t begin = local % chunks * kChunk;
  const int64_t end = std::min(begin + kChunk, slice.context_len + last);
  for (int64_t start = begin; start < end; start += kAttentionTile) {
    const int count = static_cast<int>(std::min<int64_t>(kAttentionTile, end - start));
    score_tile(plan, slice, scores, first, last, start, count, scratch);
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
  int64_t first = 0;  // its first unit
  int64_t rows = 0;   // before it
  for (int64_t unit = plan.next.fetch_add(1); unit < plan.units; unit = plan.next.fetch_add(1)) {
    while (unit >= first + ScorePlan::unit_count(plan.slices[index])) {
      first += ScorePlan::unit_count(plan.slices[index]);
      rows += std::max(0, plan.slices[index++].row_count);
    }
    score_unit(plan, plan.slices[index], plan.scores + rows * plan.scores_stride, unit - first, scratch);
  }
}

int64_t group_rows(int64_t max_positions, int threads) {
  return std::clamp<int64_t>(kGroupFloats / std::max<int64_t>(1, max_positions), threads, kGroupRows);
}

bool is_pool(const IndexerArgs& args) {
  if (args.pool == 1) return true;
  return args.pool > 1 && args.pool <= 16 && (args.pool & (args.pool - 1)) == 0 && args.cache.entry.dim % 2 == 0 &&
         args.pool_bias != nullptr;
}

// The row's best pools, as positions, and what lies behind its last whole pool.
void select_row(const SelectArgs& args, int64_t row, int64_t positions, const float* scores) {
  const int pool = args.indexer.pool;
  int32_t* to = args.selected + row * args.selected_stride;
  int count = select_top_k(scores, positions / pool, args.top_k / pool, to);
  for (int i = count - 1; i >= 0 && pool > 1; --i) {
    const int32_t first = to[i] * pool;
    for (int m = 0; m < pool; ++m) to[i * pool + m] = first + m;
  }
  count *= pool;
  for (int64_t t = positions / pool * pool; t < positions; ++t) to[count++] = static_cast<int32_t>(t);
  args.selected_count[row] = count;
}

void select_all(const SelectArgs& args, int64_t row, int64_t count) {
  int32_t* to = args.selected + row * args.selected_stride;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int32_t>(i);
  args.selected_count[row] = static_cast<int32_t>(count);
}

// Rows first .. first + count - 1 of a slice.
SequenceSlice part_of(const SequenceSlice& slice, int64_t first, int64_t count) {
  SequenceSlice part = slice;
  part.context_len += first;
  part.row_begin += static_cast<int>(first);
  part.row_count = static_cast<int>(count);
  return part;
}

// Rows of several slices whose scores are held at once.
class RowGroup {
 public:
  RowGroup(const SelectArgs& args, int64_t rows_max, int64_t scores_stride, std::span<std::byte> scratch, float* scores,
           ComputePool& threads)
      : args_(args),
        rows_max_(rows_max),
        scores_stride_(scores_stride),
        scratch_(scratch),
        scores_(scores),
        threads_(threads) {}

  void add(const SequenceSlice& slice) {
    for (int64_t r = 0; r < slice.row_count;) {
      const int64_t count = std::min(rows_max_ - rows_, slice.row_count - r);
      parts_[part_count_++] = part_of(slice, r, count);
      rows_ += count;
      r += count;
      if (rows_ == rows_max_ || part_count_ == parts_.size()) flush();
    }
  }

  void flush() {
    const std::span<const SequenceSlice> parts = std::span(parts_).first(part_count_);
    if (rows_ == 0) return;
    index_scores(args_.indexer, parts, scores_, scores_stride_, scratch_, threads_);
    threads_.parallel_for(rows_, 1, [&](int64_t begin, int64_t end) {
      size_t index = 0;
      int64_t before = 0;
      for (int64_t i = begin; i < end; ++i) {
        while (i >= before + parts[index].row_count) before += parts[index++].row_count;
        const int64_t r = i - before;
        select_row(args_, parts[index].row_begin + r, parts[index].context_len + r + 1, scores_ + i * scores_stride_);
      }
    });
    part_count_ = 0;
    rows_ = 0;
  }

 private:
  const SelectArgs& args_;
  const int64_t rows_max_;
  const int64_t scores_stride_;
  const std::span<std::byte> scratch_;
  float* const scores_;
  ComputePool& threads_;
  std::array<SequenceSlice, 64> parts_;
  size_t part_count_ = 0;
  int64_t rows_ = 0;
};

}  // namespace

size_t index_scores_scratch_bytes(int dim, int threads) {
  return static_cast<size_t>(threads * thread_floats(dim)) * sizeof(float) + 64;
}

void index_scores(const IndexerArgs& args, std::span<const SequenceSlice> slices, float* scores, int64_t scores_stride,
                  std::span<std::byte> scratch, ComputePool& pool) {
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
                  std::span<std::byte> scratch, ComputePool& threads) {
  const int dim = args.indexer.cache.entry.dim;
  const int pool = args.indexer.pool;
  BATON_CHECK(args.top_k > 0 && args.top_k % pool == 0 && args.selected_stride >= args.top_k + pool - 1,
              "top_k={} pool={} stride={}", args.top_k, pool, args.selected_stride);
  BATON_CHECK(scratch.size() >= index_select_scratch_bytes(dim, max_positions, threads.threads()),
              "scratch of {} bytes is too small", scratch.size());
  const auto own = scratch.first(index_scores_scratch_bytes(dim, threads.threads()));
  float* scores = aligned(scratch.subspan(own.size()));
  RowGroup group(args, group_rows(max_positions, threads.threads()), max_positions, own, scores, threads);
  for (const SequenceSlice& slice : slices) {
    BATON_CHECK(slice.context_len + slice.row_count <= max_positions, "{} positions, room for {}",
                slice.context_len + slice.row_count, max_positions);
    // Rows that need not choose come first.
    const int64_t unscored =
        std::clamp<int64_t>(args.top_k + pool - 1 - slice.context_len, 0, std::max(0, slice.row_count));
    for (int64_t r = 0; r < unscored; ++r) select_all(args, slice.row_begin + r, slice.context_len + r + 1);
    group.add(part_of(slice, unscored, slice.row_count - unscored));
  }
  group.flush();
}

}  // namespace baton::kernels
