// Paged attention over a context that is spread over ranks gives the bits of one rank, whole and lane by lane.
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/context_test_data.h"
#include "kernels/lane_partials.h"

namespace baton::kernels {
namespace {

using namespace test;

constexpr int kHeads = 4, kKvHeads = 2, kDim = 20;
constexpr int64_t kQueryRow = int64_t{kHeads} * kDim, kKvRow = int64_t{kKvHeads} * kDim;

struct Input {
  std::vector<float> q = random_floats(kSpreadRows * kQueryRow, 1);
  std::vector<float> k = random_floats(kSpreadTokens * kKvRow, 2);
  std::vector<float> v = random_floats(kSpreadTokens * kKvRow, 3);
};
const Input& input() {
  static const Input shared;
  return shared;
}

// The keys and values stand second, so that their offset is not 0.
std::vector<PagedEntry> entries(DType dtype) {
  return {{.kind = PagedKind::kIndexKeys, .dim = 16, .dtype = DType::kF32},
          {.kind = PagedKind::kKeysValues, .heads = kKvHeads, .dim = kDim, .dtype = dtype}};
}

struct Ranks {
  SpreadCache cache;
  Isa isa;
  ComputePool pool;
  std::vector<std::byte> scratch;
  std::vector<SequenceSlice> slices;

  Ranks(DType dtype, const Spread& spread, Isa isa_)
      : cache(entries(dtype), spread, kSpreadTokens),
        isa(isa_),
        pool({.threads = spread.threads, .spin_us = 0}),
        scratch(attention_scratch_bytes(kHeads, kKvHeads, kDim, spread.threads)),
        slices(ragged_slices(cache.table())) {
    for (int rank = 0; rank < spread.ranks; ++rank) {
      write_in_chunks(cache.table(), [&](const SequenceSlice& slice) {
        write_kv(cache.view(rank).keys_values(1), 0, {&slice, 1}, input().k.data(), kKvRow, input().v.data(), kKvRow,
                 isa, pool);
      });
    }
  }
  AttentionArgs args(int rank, std::vector<float>& out) const {
    return {.cache = cache.view(rank).keys_values(1),
            .heads = kHeads,
            .scale = 0.3f,
            .q = input().q.data(),
            .q_stride = kQueryRow,
            .out = out.data(),
            .out_stride = kQueryRow,
            .isa = isa};
  }
  std::vector<float> whole(int rank) {
    std::vector<float> out(kSpreadRows * kQueryRow, -1);
    paged_attention(args(rank, out), slices, scratch, pool);
    return out;
  }
  // Each rank its lanes; then each its share of heads, unevenly cut.
  std::vector<float> partial() {
    const int ranks = cache.spread().ranks;
    std::vector<float> out(kSpreadRows * kQueryRow, -1);
    std::vector<float> memory(lane_partials_bytes(row_total(slices), kHeads, kDim) / 4, std::nanf(""));
    const LanePartials partials = {.data = memory.data(), .heads = kHeads, .dim = kDim};
    for (int rank = 0; rank < ranks; ++rank) {
      AttentionArgs of_rank = args(rank, out);
      of_rank.out = nullptr;
      paged_attention_lanes(of_rank, slices, partials, scratch, pool);
    }
    const std::vector<float> before = memory;
    for (int first = 0, rank = 0; first < kHeads; ++rank) {
      const int count = std::min(kHeads - first, 1 + rank % 3);
      merge_lanes({.partials = partials,
                   .first_head = first,
                   .heads = count,
                   .out = out.data() + int64_t{first} * kDim,
                   .out_stride = kQueryRow,
                   .isa = isa},
                  slices, scratch, pool);
      first += count;
    }
    EXPECT_TRUE(same_bits(memory, before)) << "the partials of other ranks' heads were changed";
    return out;
  }
};

class AttentionContext : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(CacheTypes, AttentionContext, testing::ValuesIn(kCacheTypes));

TEST_P(AttentionContext, RanksGiveTheBitsOfOne) {
  const auto want = Ranks(GetParam(), {.block_size = 16}, tensor::detect_isa()).whole(0);
  for (const Spread& spread : spreads()) {
    for (Isa isa : isas()) {
      if (!takes(spread, isa, GetParam())) continue;
      Ranks ranks(GetParam(), spread, isa);
      const int rank = spread.ranks * 2 / 3;
      if (isa == tensor::detect_isa() || spread.block_size == 768)
        EXPECT_TRUE(same_bits(ranks.whole(rank), want)) << isa_name(isa) << ' ' << spread.text();
      EXPECT_TRUE(same_bits(ranks.partial(), want)) << isa_name(isa) << ' ' << spread.text();
    }
  }
}

TEST_P(AttentionContext, ARankStoresItsOwnPositionsAlone) {
  const DType dtype = GetParam();
  const Ranks one(dtype, {.block_size = 16}, tensor::detect_isa());
  const PagedKvView plain = one.cache.view(0).keys_values(1);
  const int64_t bytes = entry_token_bytes({.dim = kDim, .dtype = dtype});
  for (const Spread& spread : {Spread{4, 768}, Spread{2, 3072, 2}}) {
    const Ranks ranks(dtype, spread, tensor::detect_isa());
    for (int rank = 0; rank < spread.ranks; ++rank) {
      const PagedKvView view = ranks.cache.view(rank).keys_values(1);
      int64_t stored = 0, stored_ones = 0;
      for (int64_t i = 0; i < int64_t{spread.block_size} * std::ssize(ranks.cache.blocks()); ++i) {
        const int64_t place = i / spread.block_size * spread.ranks + rank;
        const int64_t t = place * spread.block_size + i % spread.block_size;
        if (t >= kSpreadTokens) continue;
        for (int part = 0; part < 2 * kKvHeads; ++part) {
          const std::byte* at =
              view.at(ranks.cache.blocks()[i / spread.block_size], 0, part / kKvHeads, part % kKvHeads);
          const std::byte* from = plain.at(one.cache.table()[t / 16], 0, part / kKvHeads, part % kKvHeads);
          ASSERT_EQ(std::memcmp(at + i % spread.block_size * bytes, from + t % 16 * bytes, bytes), 0) << "token " << t;
          stored += bytes;
          stored_ones += std::count(from + t % 16 * bytes, from + (t % 16 + 1) * bytes, std::byte{0xff});
        }
      }
      // What is not a token that it holds is as it was.
      const auto arena = ranks.cache.arena(rank);
      const int64_t untouched = std::count(arena.begin(), arena.end(), std::byte{0xff});
      EXPECT_EQ(untouched - stored_ones, std::ssize(arena) - stored) << spread.text() << " rank " << rank;
    }
  }
}

// Groups of uneven size, and a KV head that no query head uses, against one call per KV head.
TEST(AttentionHeads, UnevenGroupsAreGroupsOfTheirOwn) {
  const int kv_heads = 4, dim = 24, heads = 7, rows = 40;
  const std::vector<int32_t> borders = {0, 1, 5, 5, 7};
  const PagedEntry entry = {.kind = PagedKind::kKeysValues, .heads = kv_heads, .dim = dim, .dtype = DType::kBF16};
  for (int threads : {1, 3}) {
    for (int count : {rows, 1}) {
      SpreadCache cache({entry}, {.block_size = 16}, 1700);
      ComputePool pool({.threads = threads, .spin_us = 0});
      const auto k = random_floats(1700 * kv_heads * dim, 4), q = random_floats(rows * heads * dim, 5);
      const SequenceSlice all = {.block_table = cache.table(), .row_count = 1700};
      const PagedKvView view = cache.view(0).keys_values(0);
      write_kv(view, 0, {&all, 1}, k.data(), kv_heads * dim, k.data(), kv_heads * dim, tensor::detect_isa(), pool);
      const SequenceSlice slice = {.block_table = cache.table(), .context_len = 1700 - count, .row_count = count};
      const auto attend = [&](const PagedKvView& of, int first, int n, const int32_t* of_borders) {
        std::vector<float> out(rows * heads * dim, 0);
        std::vector<std::byte> scratch(attention_scratch_bytes(4, 1, dim, threads));
        paged_attention({.cache = of,
                         .heads = n,
                         .head_borders = of_borders,
                         .scale = 0.2f,
                         .q = q.data() + first * dim,
                         .q_stride = heads * dim,
                         .out = out.data() + first * dim,
                         .out_stride = heads * dim,
                         .isa = tensor::detect_isa()},
                        {&slice, 1}, scratch, pool);
        return out;
      };
      std::vector<float> want(rows * heads * dim, 0);
      for (int j = 0; j < kv_heads; ++j) {
        if (borders[j] == borders[j + 1]) continue;
        PagedKvView one = view;
        one.base = view.at(0, 0, 0, j);
        one.kv_heads = 1;
        const auto part = attend(one, borders[j], borders[j + 1] - borders[j], nullptr);
        for (size_t i = 0; i < want.size(); ++i) want[i] += part[i];
      }
      EXPECT_TRUE(same_bits(attend(view, 0, heads, borders.data()), want)) << "threads " << threads;
    }
  }
}

}  // namespace
}  // namespace baton::kernels
