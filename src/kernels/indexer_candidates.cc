// Selection over a context that is spread over ranks: each rank's best, then the best of these. What is among the best
// of all is among the best of its rank, ties included, since both go to the lower position. Sketch: at a million
// positions, 16 ranks and 2048 of them, a rank's best are found in 64K scores (0.15 ms) and the best of all in 32K.
#include <algorithm>

#include "base/check.h"
#include "kernels/indexer.h"
#include "kernels/indexer_rows.h"

namespace baton::kernels {
namespace {

// Of one row and rank: [line: count] [best] pools ascending, [best] their scores.
struct Candidates {
  int32_t* count;
  int32_t* pools;
  float* scores;

  static int64_t bytes(int best) { return 64 + (int64_t{best} * 8 + 63) / 64 * 64; }
  static Candidates at(const IndexCandidates& all, int best, int64_t row, int rank) {
    auto* base = reinterpret_cast<int32_t*>(all.data + (row * all.ranks + rank) * bytes(best));
    return {.count = base, .pools = base + 16, .scores = reinterpret_cast<float*>(base + 16 + best)};
  }
};

int64_t held_max(int64_t max_positions, int ranks, int block_size) {
  return HeldPositions({.size = ranks, .rank = 0}, block_size).count(max_positions);
}

int64_t merge_bytes(int ranks, int top_k) { return (int64_t{ranks} * top_k * 8 + 63) / 64 * 64; }

void check(const SelectArgs& args, const IndexCandidates& candidates, std::span<std::byte> scratch, size_t need) {
  const ContextSplit& split = args.indexer.cache.context;
  BATON_CHECK(args.top_k > 0 && args.top_k % args.indexer.pool == 0, "top_k={} pool={}", args.top_k, args.indexer.pool);
  BATON_CHECK(candidates.ranks == split.size && candidates.top_k == args.top_k, "candidates of {} ranks, top_k={}",
              candidates.ranks, candidates.top_k);
  BATON_CHECK(scratch.size() >= need, "scratch of {} bytes is too small", scratch.size());
}

// All ranks' candidates of a row, in ascending position; returns how many.
int64_t gather(const SelectArgs& args, const IndexCandidates& candidates, int64_t row, int32_t* pools, float* scores) {
  const int best = args.top_k / args.indexer.pool;
  const int64_t block = args.indexer.cache.block_size / args.indexer.pool;
  const int ranks = candidates.ranks;
  int taken[kAttentionLanes] = {};
  int64_t left = 0;
  for (int rank = 0; rank < ranks; ++rank) left += *Candidates::at(candidates, best, row, rank).count;
  const int64_t total = left;
  for (int64_t end = block, place = 0; left > 0; end += block, ++place) {
    const auto rank = static_cast<int>(place % ranks);
    const Candidates from = Candidates::at(candidates, best, row, rank);
    for (int& i = taken[rank]; i < *from.count && from.pools[i] < end; ++i, --left) {
      *pools++ = from.pools[i];
      *scores++ = from.scores[i];
    }
  }
  return total;
}

void select_row(const SelectArgs& args, const IndexCandidates& candidates, int64_t row, int64_t step_row,
                int64_t positions, std::byte* scratch) {
  const int best = args.top_k / args.indexer.pool;
  auto* pools = reinterpret_cast<int32_t*>(scratch);
  auto* scores = reinterpret_cast<float*>(pools + int64_t{candidates.ranks} * best);
  const int64_t total = gather(args, candidates, row, pools, scores);
  int32_t* to = args.selected + step_row * args.selected_stride;
  const int count = select_top_k(scores, total, best, to);
  for (int i = 0; i < count; ++i) to[i] = pools[to[i]];
  finish_selection(args, step_row, positions, count);
}

}  // namespace

size_t index_candidates_bytes(int64_t rows, int ranks, int top_k) {
  return static_cast<size_t>(rows * ranks * Candidates::bytes(top_k));
}

size_t index_candidates_scratch_bytes(int dim, int64_t max_positions, int ranks, int block_size, int top_k,
                                      int threads) {
  const int64_t held = held_max(max_positions, ranks, block_size);
  const size_t scores = index_scores_scratch_bytes(dim, threads) + 64 +
                        static_cast<size_t>(index_group_rows(held, threads) * held) * sizeof(float);
  return std::max(scores, static_cast<size_t>(threads * merge_bytes(ranks, top_k) + 64));
}

void index_candidates(const SelectArgs& args, std::span<const SequenceSlice> slices, int64_t max_positions,
                      const IndexCandidates& candidates, std::span<std::byte> scratch, ComputePool& threads) {
  const TokenCacheView& cache = args.indexer.cache;
  const int pool = args.indexer.pool, best = args.top_k / pool;
  check(args, candidates, scratch,
        index_candidates_scratch_bytes(cache.entry.dim, max_positions, candidates.ranks, cache.block_size, args.top_k,
                                       threads.threads()));
  const HeldPositions held(cache);
  const int64_t stride = held_max(max_positions, candidates.ranks, cache.block_size);
  const auto own = scratch.first(index_scores_scratch_bytes(cache.entry.dim, threads.threads()));
  float* scores = aligned_floats(scratch.subspan(own.size()));
  const auto score = [&](std::span<const SequenceSlice> parts) {
    index_scores_held(args.indexer, parts, scores, stride, own, threads);
  };
  const auto take = [&](const GroupRow& row) {
    const float* from = scores + row.index * stride;
    const Candidates to = Candidates::at(candidates, best, row.ordinal, cache.context.rank);
    *to.count = select_top_k(from, held.count(row.positions) / pool, best, to.pools);
    for (int i = 0; i < *to.count; ++i) {
      to.scores[i] = from[to.pools[i]];
      to.pools[i] = static_cast<int32_t>(held.position(int64_t{to.pools[i]} * pool) / pool);
    }
  };
  RowGroup group(index_group_rows(stride, threads.threads()), threads, score, take);
  int64_t ordinal = 0;
  for (const SequenceSlice& slice : slices) {
    BATON_CHECK(slice.context_len + slice.row_count <= max_positions, "{} positions, room for {}",
                slice.context_len + slice.row_count, max_positions);
    const int64_t unscored = unscored_rows(args, slice);
    group.add(part_of(slice, unscored, slice.row_count - unscored), ordinal + unscored);
    ordinal += std::max(0, slice.row_count);
  }
  group.flush();
}

void select_candidates(const SelectArgs& args, std::span<const SequenceSlice> slices, CandidateRows rows,
                       const IndexCandidates& candidates, std::span<std::byte> scratch, ComputePool& pool) {
  BATON_CHECK(args.selected_stride >= args.top_k + args.indexer.pool - 1, "stride={}", args.selected_stride);
  const int64_t thread_bytes = merge_bytes(candidates.ranks, args.top_k);
  check(args, candidates, scratch, static_cast<size_t>(pool.threads() * thread_bytes + 64));
  auto* base = reinterpret_cast<std::byte*>(aligned_floats(scratch));
  const int threads = pool.threads();
  const auto body = [&](int thread) {
    const int64_t begin = rows.first + rows.count * thread / threads;
    const int64_t end = rows.first + rows.count * (thread + 1) / threads;
    int64_t before = 0;
    for (const SequenceSlice& slice : slices) {
      const int64_t count = std::max(0, slice.row_count), unscored = unscored_rows(args, slice);
      for (int64_t r = std::max<int64_t>(0, begin - before); r < std::min(count, end - before); ++r) {
        const int64_t positions = slice.context_len + r + 1;
        if (r < unscored)
          select_all(args, slice.row_begin + r, positions);
        else
          select_row(args, candidates, before + r, slice.row_begin + r, positions, base + thread * thread_bytes);
      }
      before += count;
    }
  };
  if (threads == 1 || rows.count <= 1) {
    for (int thread = 0; thread < threads; ++thread) body(thread);
    return;
  }
  pool.run(body);
}

}  // namespace baton::kernels
