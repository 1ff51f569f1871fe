// Attention and norms. Each prints GB/s of what it must read or GFLOP/s of what it must compute.
#include "kernels/attention.h"

#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/math.h"

namespace baton::kernels {
namespace {

struct Setup {
  PagedKvView view;
  std::vector<std::byte> bytes;
  std::vector<int32_t> table;
  std::vector<float> q, out;
  std::vector<std::byte> scratch;
  ComputePool pool;
  int heads;

  Setup(int heads_, int kv_heads, int head_dim, int64_t tokens, int rows, int threads, int block_size)
      : q(static_cast<size_t>(rows) * heads_ * head_dim, 0.1f),
        out(q.size()),
        scratch(attention_scratch_bytes(heads_, kv_heads, head_dim, threads)),
        pool({.threads = threads}),
        heads(heads_) {
    const int64_t blocks = (tokens + block_size - 1) / block_size;
    view.block_size = block_size;
    view.kv_heads = kv_heads;
    view.head_dim = head_dim;
    view.head_stride = 2LL * block_size * head_dim;
    view.kv_stride = view.head_stride * kv_heads;
    view.layer_stride = view.block_stride = 2 * view.kv_stride;
    bytes.assign(view.block_stride * blocks, std::byte{0x3c});
    view.base = bytes.data();
    table.resize(blocks);
    std::iota(table.begin(), table.end(), 0);
  }
  void run(int64_t context, int rows) {
    const SequenceSlice slice = {
        .block_table = table.data(), .context_len = context, .row_begin = 0, .row_count = rows};
    const int64_t stride = static_cast<int64_t>(heads) * view.head_dim;
    paged_attention({.cache = view,
                     .layer = 0,
                     .heads = heads,
                     .scale = 0.1f,
                     .q = q.data(),
                     .q_stride = stride,
                     .out = out.data(),
                     .out_stride = stride,
                     .isa = tensor::detect_isa()},
                    {&slice, 1}, scratch, pool);
  }
};

// heads, kv heads, head dim, context, threads: one generated token.
void BM_Decode(benchmark::State& state) {
  const int kv_heads = static_cast<int>(state.range(1)), head_dim = static_cast<int>(state.range(2));
  const int64_t context = state.range(3);
  Setup setup(static_cast<int>(state.range(0)), kv_heads, head_dim, context, 1, static_cast<int>(state.range(4)), 16);
  for (auto _ : state) setup.run(context - 1, 1);
  state.SetBytesProcessed(state.iterations() * context * kv_heads * head_dim * 4);
}
BENCHMARK(BM_Decode)
    ->Args({9, 3, 64, 2000, 1})
    ->Args({9, 3, 64, 2000, 2})
    ->Args({32, 8, 128, 1024, 1})
    ->Args({32, 8, 128, 16384, 1})
    ->Args({32, 8, 128, 16384, 2})
    ->UseRealTime();

// heads, kv heads, head dim, rows, threads: a prompt from position 0.
void BM_Prefill(benchmark::State& state) {
  const int heads = static_cast<int>(state.range(0)), head_dim = static_cast<int>(state.range(2));
  const int rows = static_cast<int>(state.range(3));
  Setup setup(heads, static_cast<int>(state.range(1)), head_dim, rows, rows, static_cast<int>(state.range(4)), 16);
  for (auto _ : state) setup.run(0, rows);
  const double flops = 4.0 * head_dim * heads * (static_cast<double>(rows) * (rows + 1) / 2);
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * static_cast<double>(state.iterations()) / 1e9, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Prefill)->Args({9, 3, 64, 1024, 1})->Args({9, 3, 64, 1024, 2})->Args({32, 8, 128, 2048, 1})->UseRealTime();

void BM_RmsNorm(benchmark::State& state) {
  const int64_t rows = 64, features = state.range(0);
  std::vector<float> x(rows * features, 0.5f), w(features, 1.0f), y(x.size());
  ComputePool pool({.threads = 1});
  for (auto _ : state) {
    rms_norm(x.data(), features, w.data(), 1e-5f, y.data(), features, rows, features, tensor::detect_isa(), pool);
  }
  state.SetBytesProcessed(state.iterations() * rows * features * 8);
}
BENCHMARK(BM_RmsNorm)->Arg(576)->Arg(4096);

void BM_SiluMul(benchmark::State& state) {
  const int64_t rows = 16, features = 1536;
  std::vector<float> x(rows * features, 0.5f), y(x.size());
  ComputePool pool({.threads = 1});
  for (auto _ : state) {
    silu_mul(x.data(), features, x.data(), features, y.data(), features, rows, features, tensor::detect_isa(), pool);
  }
  state.SetItemsProcessed(state.iterations() * rows * features);
}
BENCHMARK(BM_SiluMul);

void BM_Exp(benchmark::State& state) {
  std::vector<float> x(4096, -1.5f), y(4096);
  for (auto _ : state) exp_exact(x.data(), y.data(), 4096, static_cast<tensor::Isa>(state.range(0)));
  state.SetItemsProcessed(state.iterations() * 4096);
}
BENCHMARK(BM_Exp)->Arg(0)->Arg(1)->Arg(2);

}  // namespace
}  // namespace baton::kernels
