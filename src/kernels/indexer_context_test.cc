// The indexer over a context that is spread over ranks selects what one rank selects, ties and pools included.
#include <gtest/gtest.h>

#include "kernels/context_test_data.h"
#include "kernels/indexer.h"

namespace baton::kernels {
namespace {

using namespace test;

constexpr int kHeads = 3, kDim = 16;
constexpr int64_t kQueryRow = int64_t{kHeads} * kDim;
constexpr int kTopK = 96;

struct Input {
  std::vector<float> q = random_floats(kSpreadRows * kQueryRow, 1);
  std::vector<float> weights = random_floats(kSpreadRows * kHeads, 2);
  std::vector<float> keys;  // [tokens][2 dim]: of a pooled entry; else their first half
  std::vector<float> bias = random_floats(16 * kDim, 4);

  // Keys repeat, so that many scores are equal, over all ranks.
  Input() {
    const auto some = random_floats(388 * 2 * kDim, 3);
    for (int64_t t = 0; t < kSpreadTokens; ++t) {
      keys.insert(keys.end(), some.begin() + t % 388 * 2 * kDim, some.begin() + (t % 388 + 1) * 2 * kDim);
    }
    for (int64_t t = 9000; t < 9400; ++t) keys[t * 2 * kDim] += static_cast<float>(t - 9000);
  }
};
const Input& input() {
  static const Input shared;
  return shared;
}

struct Chosen {
  std::vector<int32_t> positions, counts;
  bool operator==(const Chosen&) const = default;
};

struct Ranks {
  int pool;
  SpreadCache cache;
  Isa isa;
  ComputePool threads;
  std::vector<SequenceSlice> slices;

  Ranks(DType dtype, int pool_, const Spread& spread, Isa isa_)
      : pool(pool_),
        cache({{.kind = PagedKind::kLatent, .dim = 24, .dtype = DType::kF32},
               {.kind = PagedKind::kIndexKeys, .dim = pool > 1 ? 2 * kDim : kDim, .dtype = dtype}},
              spread, kSpreadTokens),
        isa(isa_),
        threads({.threads = spread.threads, .spin_us = 0}),
        slices(ragged_slices(cache.table())) {
    for (int rank = 0; rank < spread.ranks; ++rank) {
      write_in_chunks(cache.table(), [&](const SequenceSlice& slice) {
        write_index_keys(cache.view(rank).tokens(1), {&slice, 1}, input().keys.data(), 2 * kDim, isa, threads);
      });
    }
  }
  IndexerArgs indexer(int rank) const {
    return {.cache = cache.view(rank).tokens(1),
            .heads = kHeads,
            .q = input().q.data(),
            .q_stride = kQueryRow,
            .weights = input().weights.data(),
            .weights_stride = kHeads,
            .pool = pool,
            .pool_bias = input().bias.data(),
            .isa = isa};
  }
  SelectArgs args(int rank, Chosen& chosen) const {
    chosen.positions.resize(kSpreadRows * stride(), -1);
    chosen.counts.resize(kSpreadRows, -1);
    return {.indexer = indexer(rank),
            .top_k = kTopK,
            .selected = chosen.positions.data(),
            .selected_stride = stride(),
            .selected_count = chosen.counts.data()};
  }
  int64_t stride() const { return kTopK + pool - 1; }
  int dim() const { return pool > 1 ? 2 * kDim : kDim; }
  int thread_count() const { return threads.threads(); }

  std::vector<float> scores(int rank) {
    std::vector<float> scores(row_total(slices) * kSpreadTokens, -1);
    std::vector<std::byte> scratch(index_scores_scratch_bytes(dim(), thread_count()));
    index_scores(indexer(rank), slices, scores.data(), kSpreadTokens, scratch, threads);
    return scores;
  }
  Chosen whole(int rank) {
    Chosen chosen;
    std::vector<std::byte> scratch(index_select_scratch_bytes(dim(), kSpreadTokens, thread_count()));
    index_select(args(rank, chosen), slices, kSpreadTokens, scratch, threads);
    return chosen;
  }
  // Each rank its candidates; then each selects for its share of rows.
  Chosen partial() {
    const int ranks = cache.spread().ranks;
    const int64_t rows = row_total(slices);
    Chosen chosen;
    std::vector<std::byte> memory(index_candidates_bytes(rows, ranks, kTopK), std::byte{0xff});
    const IndexCandidates candidates = {.data = memory.data(), .ranks = ranks, .top_k = kTopK};
    std::vector<std::byte> scratch(
        index_candidates_scratch_bytes(dim(), kSpreadTokens, ranks, cache.spread().block_size, kTopK, thread_count()));
    for (int rank = 0; rank < ranks; ++rank) {
      index_candidates(args(rank, chosen), slices, kSpreadTokens, candidates, scratch, threads);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t first = rows * rank / ranks, end = rows * (rank + 1) / ranks;
      select_candidates(args(rank, chosen), slices, {.first = first, .count = end - first}, candidates, scratch,
                        threads);
    }
    return chosen;
  }
};

class IndexerContext : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(CacheTypes, IndexerContext, testing::ValuesIn(kCacheTypes));

TEST_P(IndexerContext, RanksSelectWhatOneSelects) {
  for (int pool : {1, 4}) {
    Ranks one(GetParam(), pool, {.block_size = 16}, tensor::detect_isa());
    const Chosen want = one.whole(0);
    for (const Spread& spread : spreads()) {
      for (Isa isa : isas()) {
        if (!takes(spread, isa, GetParam())) continue;
        Ranks ranks(GetParam(), pool, spread, isa);
        EXPECT_TRUE(ranks.whole(spread.ranks - 1) == want) << isa_name(isa) << " pool " << pool << ' ' << spread.text();
        EXPECT_TRUE(ranks.partial() == want) << isa_name(isa) << " pool " << pool << ' ' << spread.text();
      }
    }
  }
}

TEST_P(IndexerContext, RanksScoreWhatOneScores) {
  for (int pool : {1, 16}) {
    const auto want = Ranks(GetParam(), pool, {.block_size = 16}, tensor::detect_isa()).scores(0);
    for (const Spread& spread : {Spread{4, 1536, 2}, Spread{16, 768}}) {
      EXPECT_TRUE(same_bits(Ranks(GetParam(), pool, spread, tensor::detect_isa()).scores(1), want)) << spread.text();
    }
  }
}

TEST(IndexerContext, TiesAreMetOnSeveralRanks) {
  // Guards the test's own input: what is selected last is one of many equals, and not the first ones of one rank alone.
  Ranks one(DType::kF32, 1, {.block_size = 16}, tensor::detect_isa());
  const Chosen chosen = one.whole(0);
  const auto scores = one.scores(0);  // row 0 of them: the first slice, step row 3
  std::vector<float> kept;
  for (int i = 0; i < chosen.counts[3]; ++i) kept.push_back(scores[chosen.positions[3 * one.stride() + i]]);
  const float least = *std::min_element(kept.begin(), kept.end());
  const auto of_least = std::count(kept.begin(), kept.end(), least);
  EXPECT_GT(of_least, 1);
  EXPECT_GT(std::count(scores.begin(), scores.begin() + kSpreadTokens, least), of_least);
}

}  // namespace
}  // namespace baton::kernels
