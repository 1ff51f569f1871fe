// Latent attention over a context that is spread over ranks gives the bits of one rank: dense and sparse, whole and
// lane by lane.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "kernels/context_test_data.h"
#include "kernels/lane_partials.h"
#include "kernels/latent_attention.h"

namespace baton::kernels {
namespace {

using namespace test;

constexpr int kHeads = 3, kRank = 24, kRope = 8;
constexpr int64_t kQueryRow = int64_t{kHeads} * (kRank + kRope), kOutRow = int64_t{kHeads} * kRank;

// Positions that a row attends to in the sparse form.
struct Selection {
  int64_t stride = 3000;
  std::vector<int32_t> positions = std::vector<int32_t>(kSpreadRows * stride, -1);
  std::vector<int32_t> counts = std::vector<int32_t>(kSpreadRows, 0);

  void add(int64_t row, int64_t position) { positions[row * stride + counts[row]++] = static_cast<int32_t>(position); }
};

struct Input {
  std::vector<float> q = random_floats(kSpreadRows * kQueryRow, 1);
  std::vector<float> latent = random_floats(kSpreadTokens * kRank, 2);
  std::vector<float> rope = random_floats(kSpreadTokens * kRope, 3);
  Selection selection;

  // One row one position, one row the positions of one lane, others a ninth or all of what they see.
  Input() {
    std::mt19937 generator(9);
    for (const SequenceSlice& slice : ragged_slices(nullptr)) {
      for (int r = 0; r < slice.row_count; ++r) {
        const int64_t row = slice.row_begin + r, last = slice.context_len + r;
        for (int64_t t = 0; t <= last; ++t) {
          const bool wanted = row == 15   ? t == 4000
                              : row == 11 ? t / kAttentionSpan == 5
                                          : last < 2000 || t == last || generator() % 9 == 0;
          if (wanted) selection.add(row, t);
        }
      }
    }
  }
};
const Input& input() {
  static const Input shared;
  return shared;
}

struct Ranks {
  SpreadCache cache;
  Isa isa;
  ComputePool pool;
  std::vector<std::byte> scratch;
  std::vector<SequenceSlice> slices;

  Ranks(DType dtype, const Spread& spread, Isa isa_)
      : cache({{.kind = PagedKind::kLatent, .dim = 24, .dtype = DType::kF32},
               {.kind = PagedKind::kLatent, .dim = kRank, .rope_dim = kRope, .dtype = dtype}},
              spread, kSpreadTokens),
        isa(isa_),
        pool({.threads = spread.threads, .spin_us = 0}),
        scratch(latent_attention_scratch_bytes(kHeads, kRank, kRope, spread.threads)),
        slices(ragged_slices(cache.table())) {
    for (int rank = 0; rank < spread.ranks; ++rank) {
      write_in_chunks(cache.table(), [&](const SequenceSlice& slice) {
        write_latents(cache.view(rank).tokens(1), {&slice, 1}, input().latent.data(), kRank, input().rope.data(), kRope,
                      isa, pool);
      });
    }
  }
  LatentAttentionArgs args(int rank, bool sparse, std::vector<float>& out) const {
    const Selection& selection = input().selection;
    return {.cache = cache.view(rank).tokens(1),
            .heads = kHeads,
            .scale = 0.2f,
            .q = input().q.data(),
            .q_stride = kQueryRow,
            .out = out.data(),
            .out_stride = kOutRow,
            .selected = sparse ? selection.positions.data() : nullptr,
            .selected_stride = selection.stride,
            .selected_count = selection.counts.data(),
            .isa = isa};
  }
  std::vector<float> whole(int rank, bool sparse) {
    std::vector<float> out(kSpreadRows * kOutRow, -1);
    latent_attention(args(rank, sparse, out), slices, scratch, pool);
    return out;
  }
  std::vector<float> partial(bool sparse) {
    std::vector<float> out(kSpreadRows * kOutRow, -1);
    std::vector<float> memory(lane_partials_bytes(row_total(slices), kHeads, kRank) / 4, std::nanf(""));
    const LanePartials partials = {.data = memory.data(), .heads = kHeads, .dim = kRank};
    for (int rank = 0; rank < cache.spread().ranks; ++rank) {
      for (int first : {0, 1}) {  // some of the heads a call
        LatentAttentionArgs of_rank = args(rank, sparse, out);
        of_rank.heads = first == 0 ? 1 : kHeads - 1;
        of_rank.q += first * (kRank + kRope);
        LanePartials some = partials;
        some.first_head = first;
        latent_attention_lanes(of_rank, slices, some, scratch, pool);
      }
    }
    for (int first : {0, 2}) {
      merge_lanes({.partials = partials,
                   .first_head = first,
                   .heads = first == 0 ? 2 : kHeads - 2,
                   .out = out.data() + int64_t{first} * kRank,
                   .out_stride = kOutRow,
                   .isa = isa},
                  slices, scratch, pool);
    }
    return out;
  }
};

class LatentContext : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(CacheTypes, LatentContext, testing::ValuesIn(kCacheTypes));

TEST_P(LatentContext, RanksGiveTheBitsOfOne) {
  Ranks one(GetParam(), {.block_size = 16}, tensor::detect_isa());
  const std::vector<float> want[] = {one.whole(0, false), one.whole(0, true)};
  ASSERT_FALSE(same_bits(want[0], want[1]));
  for (const Spread& spread : spreads()) {
    for (Isa isa : isas()) {
      if (!takes(spread, isa, GetParam())) continue;
      Ranks ranks(GetParam(), spread, isa);
      const int rank = spread.ranks / 2;
      for (bool sparse : {false, true}) {
        if (isa == tensor::detect_isa() || spread.block_size == 768)
          EXPECT_TRUE(same_bits(ranks.whole(rank, sparse), want[sparse])) << isa_name(isa) << ' ' << spread.text();
        EXPECT_TRUE(same_bits(ranks.partial(sparse), want[sparse])) << isa_name(isa) << ' ' << spread.text();
      }
    }
  }
}

// The ranks are threads: each writes what it holds, runs its lanes and merges its heads, behind barriers as they meet
// in a layer.
TEST(LatentContext, RanksMeetAtBarriersAlone) {
  const int rank_count = 4, heads = 8, rank = 32;
  const int64_t tokens = 6000;
  const auto q = random_floats(3 * heads * rank, 1), latent = random_floats(tokens * rank, 2);
  const PagedEntry entry = {.kind = PagedKind::kLatent, .dim = rank, .dtype = DType::kF8E4M3};
  const auto attend = [&](int ranks) {
    SpreadCache cache({entry}, {.ranks = ranks, .block_size = 768}, tokens);
    std::vector<float> out(q.size());
    std::vector<float> memory(lane_partials_bytes(3, heads, rank) / 4);
    std::barrier together(ranks);
    const auto run = [&](int c) {
      ComputePool pool({.threads = 1, .spin_us = 0});
      std::vector<std::byte> scratch(latent_attention_scratch_bytes(heads, rank, 0, 1));
      const SequenceSlice all = {.block_table = cache.table(), .row_count = static_cast<int>(tokens)};
      const SequenceSlice slice = {.block_table = cache.table(), .context_len = tokens - 3, .row_count = 3};
      const LanePartials partials = {.data = memory.data(), .heads = heads, .dim = rank};
      LatentAttentionArgs args = {.cache = cache.view(c).tokens(0),
                                  .heads = heads,
                                  .scale = 0.2f,
                                  .q = q.data(),
                                  .q_stride = heads * rank,
                                  .isa = tensor::detect_isa()};
      write_latents(args.cache, {&all, 1}, latent.data(), rank, nullptr, 0, args.isa, pool);
      together.arrive_and_wait();
      latent_attention_lanes(args, {&slice, 1}, partials, scratch, pool);
      together.arrive_and_wait();
      const int own = heads / ranks;
      merge_lanes({.partials = partials,
                   .first_head = c * own,
                   .heads = own,
                   .out = out.data() + c * own * rank,
                   .out_stride = heads * rank,
                   .isa = args.isa},
                  {&slice, 1}, scratch, pool);
    };
    std::vector<std::thread> threads;
    for (int c = 0; c < ranks; ++c) threads.emplace_back(run, c);
    for (std::thread& thread : threads) thread.join();
    return out;
  };
  EXPECT_TRUE(same_bits(attend(rank_count), attend(1)));
}

// Heads beyond one block of queries, and few enough rows that blocks are halved for threads.
TEST(LatentContext, ManyHeadsAreCutIntoBlocks) {
  const int heads = 150, rank = 16;
  const int64_t tokens = 4000;
  const auto q = random_floats(2 * heads * rank, 1), latent = random_floats(tokens * rank, 2);
  std::vector<float> want;
  for (const Spread& spread : {Spread{1, 16, 1}, Spread{1, 768, 2}, Spread{4, 768, 3}}) {
    SpreadCache cache({{.kind = PagedKind::kLatent, .dim = rank, .dtype = DType::kBF16}}, spread, tokens);
    ComputePool pool({.threads = spread.threads, .spin_us = 0});
    std::vector<std::byte> scratch(latent_attention_scratch_bytes(heads, rank, 0, spread.threads));
    const SequenceSlice all = {.block_table = cache.table(), .row_count = static_cast<int>(tokens)};
    const SequenceSlice slice = {.block_table = cache.table(), .context_len = tokens - 2, .row_count = 2};
    std::vector<float> out(q.size());
    std::vector<float> memory(lane_partials_bytes(2, heads, rank) / 4);
    const LanePartials partials = {.data = memory.data(), .heads = heads, .dim = rank};
    for (int c = 0; c < spread.ranks; ++c) {
      write_latents(cache.view(c).tokens(0), {&all, 1}, latent.data(), rank, nullptr, 0, tensor::detect_isa(), pool);
    }
    for (int c = 0; c < spread.ranks; ++c) {
      const LatentAttentionArgs args = {.cache = cache.view(c).tokens(0),
                                        .heads = heads,
                                        .scale = 0.2f,
                                        .q = q.data(),
                                        .q_stride = heads * rank,
                                        .out = out.data(),
                                        .out_stride = heads * rank,
                                        .isa = tensor::detect_isa()};
      if (want.empty())
        latent_attention(args, {&slice, 1}, scratch, pool);
      else
        latent_attention_lanes(args, {&slice, 1}, partials, scratch, pool);
    }
    if (want.empty()) {
      want = out;
      continue;
    }
    merge_lanes({.partials = partials,
                 .heads = heads,
                 .out = out.data(),
                 .out_stride = heads * rank,
                 .isa = tensor::detect_isa()},
                {&slice, 1}, scratch, pool);
    EXPECT_TRUE(same_bits(out, want)) << spread.text();
  }
}

}  // namespace
}  // namespace baton::kernels
