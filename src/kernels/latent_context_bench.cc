// One generated token over a context that is spread over 16 ranks, which share the bench's threads: what the ranks do
// together beside what one rank with as many threads does; then the indexer's choice.
#include <atomic>
#include <cmath>
#include <numeric>

#include "kernels/bench_support.h"
#include "kernels/indexer.h"
#include "kernels/indexer_rows.h"
#include "kernels/lane_partials.h"
#include "kernels/latent_attention.h"
#include "kernels/latent_cache.h"

namespace baton::kernels {
namespace {

using tensor::DType;

constexpr int kRanks = 16;

// One entry's cache over `ranks` ranks; blocks of 768 (16 on one rank).
struct SpreadArena {
  int ranks;
  std::vector<tensor::Buffer> bytes;
  std::vector<std::byte*> bases;
  std::vector<int32_t> table;
  TokenCacheView view;

  SpreadArena(const PagedEntry& entry, int64_t tokens, int ranks_, Bench& bench) : ranks(ranks_) {
    const int block_size = ranks == 1 ? 16 : kAttentionSpan;
    const int64_t round = int64_t{block_size} * ranks, blocks = (tokens + round - 1) / round;
    view = {.entry = entry,
            .block_size = block_size,
            .block_stride = entry_block_bytes(entry, block_size),
            .token_bytes = entry_token_bytes(entry)};
    table.resize(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(3));
    for (int rank = 0; rank < ranks; ++rank) {
      bytes.push_back(*tensor::Buffer::allocate(view.block_stride * blocks));
      bases.push_back(bytes.back().data());
    }
    const int64_t width = entry.dim + entry.rope_dim, chunk = 8192;
    const auto values = random_floats(chunk * width, 7);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int64_t t = 0; t < tokens; t += chunk) {
        const SequenceSlice slice = {
            .block_table = table.data(), .context_len = t, .row_count = static_cast<int>(std::min(chunk, tokens - t))};
        if (entry.kind == PagedKind::kLatent) {
          write_latents(of(rank), {&slice, 1}, values.data(), width, values.data() + entry.dim, width,
                        bench.options.isa, bench.pool);
        } else {
          write_index_keys(of(rank), {&slice, 1}, values.data(), width, bench.options.isa, bench.pool);
        }
      }
    }
  }
  TokenCacheView of(int rank) const {
    TokenCacheView own = view;
    own.base = bases[rank];
    if (ranks == 1) return own;
    own.context = {.size = ranks, .rank = rank};
    own.context_bases = bases.data();
    return own;
  }
};

// Calls body(rank, pool) for all ranks, each with a thread for itself while it lasts.
template <typename Body>
void run_ranks(Bench& bench, Body body) {
  std::atomic<int> next{0};
  bench.pool.run([&](int) {
    ComputePool own({.threads = 1});
    for (int rank = next.fetch_add(1); rank < kRanks; rank = next.fetch_add(1)) body(rank, own);
  });
}

void bench_lanes(Bench& bench, DType dtype, int heads, int64_t tokens) {
  const int threads = bench.options.threads;
  const auto name = fmt::format("context {} heads {} of {}", tensor::dtype_name(dtype), heads, tokens);
  if (!bench.wants(name)) return;
  const auto q = random_floats(int64_t{heads} * 576, 1);
  std::vector<float> out(int64_t{heads} * 512), spread_out(out.size());
  std::vector<std::byte> scratch(latent_attention_scratch_bytes(heads, 512, 64, threads));
  const SpreadArena one(latent_entry(dtype), tokens, 1, bench), spread(latent_entry(dtype), tokens, kRanks, bench);
  const auto args_of = [&](const TokenCacheView& cache, float* to) {
    return LatentAttentionArgs{.cache = cache,
                               .heads = heads,
                               .scale = 0.05f,
                               .q = q.data(),
                               .q_stride = int64_t{heads} * 576,
                               .out = to,
                               .out_stride = int64_t{heads} * 512,
                               .isa = bench.options.isa};
  };
  const auto slice_of = [&](const SpreadArena& arena) {
    return SequenceSlice{.block_table = arena.table.data(), .context_len = tokens - 1, .row_count = 1};
  };
  const SequenceSlice slice = slice_of(one), spread_slice = slice_of(spread);
  const auto whole = [&] { latent_attention(args_of(one.of(0), out.data()), {&slice, 1}, scratch, bench.pool); };

  auto memory = *tensor::Buffer::allocate(lane_partials_bytes(1, heads, 512));
  const LanePartials partials = {.data = memory.as<float>(), .heads = heads, .dim = 512};
  std::vector<std::vector<std::byte>> scratches(
      kRanks, std::vector<std::byte>(latent_attention_scratch_bytes(heads, 512, 64, 1)));
  const auto lanes = [&] {
    run_ranks(bench, [&](int rank, ComputePool& pool) {
      latent_attention_lanes(args_of(spread.of(rank), nullptr), {&spread_slice, 1}, partials, scratches[rank], pool);
    });
  };
  const auto merge = [&] {
    run_ranks(bench, [&](int rank, ComputePool& pool) {
      const int first = heads * rank / kRanks;
      merge_lanes({.partials = partials,
                   .first_head = first,
                   .heads = heads * (rank + 1) / kRanks - first,
                   .out = spread_out.data() + int64_t{first} * 512,
                   .out_stride = int64_t{heads} * 512,
                   .isa = bench.options.isa},
                  {&spread_slice, 1}, scratches[rank], pool);
    });
  };
  double of_one = 1e30, of_ranks = 1e30, of_merge = 1e30;
  for (int i = 0; i < 4; ++i) {
    of_one = std::min(of_one, seconds_of(threads, 1, whole));
    const double before = seconds_of(threads, 1, lanes), last = seconds_of(threads, 1, merge);
    if (before + last < of_ranks) of_ranks = before + last, of_merge = last;
  }
  const double bytes = static_cast<double>(tokens * one.view.token_bytes), ops = kOpsPerPair * heads * tokens;
  bench.line(name + " one rank", of_one, bytes, ops);
  bench.line(name + " 16 ranks", of_ranks, bytes, ops);
  bench.line(name + " 16 ranks, the merge of it", of_merge, 0, 0);
  bench.check(name, out == spread_out, "16 ranks and one give unequal outputs");
}

// The choice of 2048 positions for one row, all but the scoring: out of all positions' scores by one rank, against each
// rank's best out of its own and then the best of these. Small heads: scoring is not what is looked at.
void bench_choice(Bench& bench, int64_t tokens) {
  const int heads = 4, dim = 16, top_k = 2048;
  const auto name = fmt::format("context choice of 2048 of {}", tokens);
  if (!bench.wants(name)) return;
  const SpreadArena arena({.kind = PagedKind::kIndexKeys, .dim = dim, .dtype = DType::kI8}, tokens, kRanks, bench);
  const auto q = random_floats(heads * dim, 1), w = random_floats(heads, 2);
  const SequenceSlice slice = {.block_table = arena.table.data(), .context_len = tokens - 1, .row_count = 1};
  std::vector<int32_t> selected(top_k), of_all(top_k), count(1);
  auto memory = *tensor::Buffer::allocate(index_candidates_bytes(1, kRanks, top_k));
  const IndexCandidates candidates = {.data = memory.data(), .ranks = kRanks, .top_k = top_k};
  std::vector<std::byte> scratch(index_candidates_scratch_bytes(dim, tokens, kRanks, kAttentionSpan, top_k, 1));
  std::vector<float> scores(tokens), own(tokens);
  ComputePool pool({.threads = 1});
  const auto args_of = [&](int rank) {
    return SelectArgs{.indexer = {.cache = arena.of(rank),
                                  .heads = heads,
                                  .q = q.data(),
                                  .q_stride = heads * dim,
                                  .weights = w.data(),
                                  .weights_stride = heads,
                                  .isa = bench.options.isa},
                      .top_k = top_k,
                      .selected = selected.data(),
                      .selected_stride = top_k,
                      .selected_count = count.data()};
  };
  for (int rank = 1; rank < kRanks; ++rank) {
    index_candidates(args_of(rank), {&slice, 1}, tokens, candidates, scratch, pool);
  }
  index_scores(args_of(0).indexer, {&slice, 1}, scores.data(), tokens, scratch, pool);
  const double all = seconds_of(1, 5, [&] { select_top_k(scores.data(), tokens, top_k, of_all.data()); });
  const double score =
      seconds_of(1, 5, [&] { index_scores_held(args_of(0).indexer, {&slice, 1}, own.data(), tokens, scratch, pool); });
  const double best =
      seconds_of(1, 5, [&] { index_candidates(args_of(0), {&slice, 1}, tokens, candidates, scratch, pool); });
  const double choose = seconds_of(
      1, 5, [&] { select_candidates(args_of(0), {&slice, 1}, {.first = 0, .count = 1}, candidates, scratch, pool); });
  bench.line(name + ", of all scores", all, 0, 0);
  bench.line(name + ", a rank's best", std::max(1e-9, best - score), 0, 0);
  bench.line(name + ", best of 16 ranks'", choose, 0, 0);
  bench.check(name, selected == of_all, "16 ranks and one choose unequally");
}

}  // namespace

void bench_context(Bench& bench) {
  for (int heads : {64, 128}) bench_lanes(bench, DType::kBF16, heads, 65536);
  bench_lanes(bench, DType::kF8E4M3, 64, 65536);
  for (int64_t tokens : {65536, 1048576}) bench_choice(bench, tokens);
}

}  // namespace baton::kernels
