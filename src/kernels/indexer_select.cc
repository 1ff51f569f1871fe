// Selection out of the scores of a whole context.
#include <algorithm>

#include "base/check.h"
#include "kernels/indexer.h"
#include "kernels/indexer_rows.h"

namespace baton::kernels {
namespace {

constexpr int64_t kGroupFloats = 4 << 20;  // scores held at once: 16 MiB, or one row a thread
constexpr int64_t kGroupRows = 256;

}  // namespace

int64_t index_group_rows(int64_t positions, int threads) {
  return std::clamp<int64_t>(kGroupFloats / std::max<int64_t>(1, positions), threads, kGroupRows);
}

void finish_selection(const SelectArgs& args, int64_t row, int64_t positions, int count) {
  const int pool = args.indexer.pool;
  int32_t* to = args.selected + row * args.selected_stride;
  for (int i = count - 1; i >= 0 && pool > 1; --i) {
    const int32_t first = to[i] * pool;
    for (int m = 0; m < pool; ++m) to[i * pool + m] = first + m;
  }
  count *= pool;
  for (int64_t t = positions / pool * pool; t < positions; ++t) to[count++] = static_cast<int32_t>(t);
  args.selected_count[row] = count;
}

void select_all(const SelectArgs& args, int64_t row, int64_t positions) {
  int32_t* to = args.selected + row * args.selected_stride;
  for (int64_t i = 0; i < positions; ++i) to[i] = static_cast<int32_t>(i);
  args.selected_count[row] = static_cast<int32_t>(positions);
}

size_t index_select_scratch_bytes(int dim, int64_t max_positions, int threads) {
  return index_scores_scratch_bytes(dim, threads) + 64 +
         static_cast<size_t>(index_group_rows(max_positions, threads) * max_positions) * sizeof(float);
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
  float* scores = aligned_floats(scratch.subspan(own.size()));
  const auto score = [&](std::span<const SequenceSlice> parts) {
    index_scores(args.indexer, parts, scores, max_positions, own, threads);
  };
  const auto take = [&](const GroupRow& row) {
    const int count = select_top_k(scores + row.index * max_positions, row.positions / pool, args.top_k / pool,
                                   args.selected + row.step_row * args.selected_stride);
    finish_selection(args, row.step_row, row.positions, count);
  };
  RowGroup group(index_group_rows(max_positions, threads.threads()), threads, score, take);
  for (const SequenceSlice& slice : slices) {
    BATON_CHECK(slice.context_len + slice.row_count <= max_positions, "{} positions, room for {}",
                slice.context_len + slice.row_count, max_positions);
    const int64_t unscored = unscored_rows(args, slice);
    for (int64_t r = 0; r < unscored; ++r) select_all(args, slice.row_begin + r, slice.context_len + r + 1);
    group.add(part_of(slice, unscored, slice.row_count - unscored), 0);
  }
  group.flush();
}

}  // namespace baton::kernels
