// Latent attention, the indexer and their packed caches, and the error of each cache dtype (kernel_bench.h).
#include <numeric>

#include "kernels/bench_support.h"
#include "kernels/indexer.h"
#include "kernels/latent_attention.h"
#include "kernels/latent_cache.h"

namespace baton::kernels {
namespace {

using tensor::DType;

// A cache of one entry, its blocks of 16 shuffled, filled with `tokens` tokens.
struct Arena {
  tensor::Buffer bytes;
  std::vector<int32_t> table;
  TokenCacheView view;

  Arena(const PagedEntry& entry, int64_t tokens, Bench& bench) {
    const int64_t blocks = (tokens + 15) / 16;
    view = {.entry = entry,
            .block_size = 16,
            .block_stride = entry_block_bytes(entry, 16),
            .token_bytes = entry_token_bytes(entry)};
    bytes = *tensor::Buffer::allocate(view.block_stride * blocks);
    view.base = bytes.data();
    table.resize(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(3));
    const SequenceSlice slice = {.block_table = table.data(), .row_count = static_cast<int>(tokens)};
    const auto values = random_floats(tokens * (entry.dim + entry.rope_dim), 7);
    const int64_t stride = entry.dim + entry.rope_dim;
    if (entry.kind == PagedKind::kLatent) {
      write_latents(view, {&slice, 1}, values.data(), stride, values.data() + entry.dim, stride, bench.options.isa,
                    bench.pool);
    } else {
      write_index_keys(view, {&slice, 1}, values.data(), stride, bench.options.isa, bench.pool);
    }
  }
};

struct Attend {
  Arena arena;
  int heads;
  std::vector<float> q, out;
  std::vector<std::byte> scratch;
  std::vector<int32_t> selected, counts;

  Attend(DType dtype, int heads_, int64_t tokens, int rows, Bench& bench)
      : arena(latent_entry(dtype), tokens, bench),
        heads(heads_),
        q(random_floats(int64_t{rows} * heads * 576, 1)),
        out(static_cast<size_t>(rows) * heads * 512),
        scratch(latent_attention_scratch_bytes(heads, 512, 64, bench.options.threads)) {}
  void select(int count, int64_t tokens) {
    for (int i = 0; i < count; ++i) selected.push_back(static_cast<int32_t>(i * tokens / count));
    counts.assign(1, count);
  }
  void run(int64_t tokens, int rows, Bench& bench) {
    const SequenceSlice slice = {.block_table = arena.table.data(), .context_len = tokens - rows, .row_count = rows};
    latent_attention({.cache = arena.view,
                      .heads = heads,
                      .scale = 0.05f,
                      .q = q.data(),
                      .q_stride = int64_t{heads} * 576,
                      .out = out.data(),
                      .out_stride = int64_t{heads} * 512,
                      .selected = selected.empty() ? nullptr : selected.data(),
                      .selected_stride = static_cast<int64_t>(selected.size()),
                      .selected_count = counts.data(),
                      .isa = bench.options.isa},
                     {&slice, 1}, scratch, bench.pool);
  }
};

void bench_decode(Bench& bench) {
  const int64_t tokens = 4096;
  for (DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8}) {
    for (int heads : {8, 16, 64, 96, 128}) {
      const auto name = fmt::format("decode {} heads {} context {}", tensor::dtype_name(dtype), heads, tokens);
      if (!bench.wants(name)) continue;
      Attend attend(dtype, heads, tokens, 1, bench);
      const double seconds = seconds_of(bench.options.threads, 3, [&] { attend.run(tokens, 1, bench); });
      bench.line(name, seconds, static_cast<double>(tokens * attend.arena.view.token_bytes),
                 kOpsPerPair * heads * tokens);
    }
  }
}

void bench_sparse(Bench& bench) {
  const int64_t tokens = 65536;
  for (DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (int heads : {16, 64}) {
      const auto name = fmt::format("sparse {} heads {} 2048 of {}", tensor::dtype_name(dtype), heads, tokens);
      if (!bench.wants(name)) continue;
      Attend attend(dtype, heads, tokens, 1, bench);
      attend.select(2048, tokens);
      const double seconds = seconds_of(bench.options.threads, 3, [&] { attend.run(tokens, 1, bench); });
      bench.line(name, seconds, 2048.0 * static_cast<double>(attend.arena.view.token_bytes),
                 kOpsPerPair * heads * 2048);
    }
  }
}

void bench_prefill(Bench& bench) {
  const int rows = 512;
  for (int heads : {8, 64}) {
    for (int64_t tokens : {512, 1536}) {
      const auto name = fmt::format("prefill bf16 heads {} rows {} to {}", heads, rows, tokens);
      if (!bench.wants(name)) continue;
      Attend attend(DType::kBF16, heads, tokens, rows, bench);
      const double seconds =
          seconds_of(bench.options.threads, heads == 64 ? 1 : 2, [&] { attend.run(tokens, rows, bench); });
      double pairs = 0;
      for (int64_t r = tokens - rows; r < tokens; ++r) pairs += static_cast<double>(r + 1);
      bench.line(name, seconds, static_cast<double>(tokens * attend.arena.view.token_bytes),
                 kOpsPerPair * heads * pairs);
    }
  }
}

void bench_indexer(Bench& bench) {
  const int heads = 64, dim = 128;
  for (DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8}) {
    for (int rows : {1, 64}) {
      const int64_t tokens = rows == 1 ? 16384 : 4096;
      const auto name =
          fmt::format("indexer {} heads {} rows {} context {}", tensor::dtype_name(dtype), heads, rows, tokens);
      if (!bench.wants(name)) continue;
      Arena arena({.kind = PagedKind::kIndexKeys, .dim = dim, .dtype = dtype}, tokens, bench);
      const auto q = random_floats(int64_t{rows} * heads * dim, 1), w = random_floats(int64_t{rows} * heads, 2);
      std::vector<float> scores(static_cast<size_t>(rows * tokens));
      std::vector<std::byte> scratch(index_scores_scratch_bytes(dim, bench.options.threads));
      const SequenceSlice slice = {.block_table = arena.table.data(), .context_len = tokens - rows, .row_count = rows};
      const double seconds = seconds_of(bench.options.threads, 2, [&] {
        index_scores({.cache = arena.view,
                      .heads = heads,
                      .q = q.data(),
                      .q_stride = int64_t{heads} * dim,
                      .weights = w.data(),
                      .weights_stride = heads,
                      .isa = bench.options.isa},
                     {&slice, 1}, scores.data(), tokens, scratch, bench.pool);
      });
      bench.line(name, seconds, static_cast<double>(tokens * arena.view.token_bytes),
                 2.0 * dim * heads * rows * static_cast<double>(tokens));
    }
  }
  const auto scores = random_floats(131072, 5);
  std::vector<int32_t> selected(2048);
  const double seconds = seconds_of(1, 5, [&] { select_top_k(scores.data(), 131072, 2048, selected.data()); });
  bench.line("indexer top 2048 of 131072", seconds, 131072 * 4.0, 0);
}

// Relative error of the output (its L2 norm) against an fp32 cache: latents of a norm's size, and the same with every
// 64th dimension 20 times larger, as outlier channels are.
}  // namespace

void bench_latent_errors(Bench& bench) {
  const int heads = 16, rows = 16;
  const int64_t tokens = 512;
  for (bool outliers : {false, true}) {
    auto latent = random_floats(tokens * 512, 11);
    const auto rope = random_floats(tokens * 64, 12);
    if (outliers) {
      for (size_t i = 0; i < latent.size(); i += 64) latent[i] *= 20;
    }
    std::vector<float> exact;
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kF8E4M3}) {
      Attend attend(dtype, heads, tokens, rows, bench);
      const SequenceSlice all = {.block_table = attend.arena.table.data(), .row_count = static_cast<int>(tokens)};
      write_latents(attend.arena.view, {&all, 1}, latent.data(), 512, rope.data(), 64, bench.options.isa, bench.pool);
      attend.run(tokens, rows, bench);
      if (dtype == DType::kF32) exact = attend.out;
      bench.error_line(fmt::format("error latent {}{}", tensor::dtype_name(dtype), outliers ? " with outliers" : ""),
                       attend.out, exact);
    }
  }
}

void bench_latent(Bench& bench) {
  bench_decode(bench);
  bench_sparse(bench);
  bench_prefill(bench);
  bench_indexer(bench);
}

}  // namespace baton::kernels
