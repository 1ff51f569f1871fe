// Attention and norms. Each prints GB/s of what it must read or GFLOP/s of what it must compute.
#include "kernels/attention.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/math.h"
#include "tensor/buffer.h"

namespace baton::kernels {
namespace {

struct Setup {
  PagedKvView view;
  tensor::Buffer bytes;
  std::vector<int32_t> table;
  std::vector<float> q, out;
  std::vector<std::byte> scratch;
  ComputePool pool;
  int heads;

  Setup(int heads_, int kv_heads, int head_dim, int64_t tokens, int rows, int threads, int block_size,
        tensor::DType dtype = tensor::DType::kBF16)
      : q(static_cast<size_t>(rows) * heads_ * head_dim, 0.1f),
        out(q.size()),
        scratch(attention_scratch_bytes(heads_, kv_heads, head_dim, threads)),
        pool({.threads = threads}),
        heads(heads_) {
    const int64_t blocks = (tokens + block_size - 1) / block_size;
    view.block_size = block_size;
    view.kv_heads = kv_heads;
    view.head_dim = head_dim;
    view.dtype = dtype;
    view.head_stride = block_size * entry_token_bytes({.dim = head_dim, .dtype = dtype});
    view.kv_stride = view.head_stride * kv_heads;
    view.layer_stride = view.block_stride = 2 * view.kv_stride;
    bytes = *tensor::Buffer::allocate(view.block_stride * blocks);
    std::memset(bytes.data(), 0x3c, bytes.size());
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
template <tensor::DType kType>
void BM_Decode(benchmark::State& state) {
  const int kv_heads = static_cast<int>(state.range(1)), head_dim = static_cast<int>(state.range(2));
  const int64_t context = state.range(3);
  Setup setup(static_cast<int>(state.range(0)), kv_heads, head_dim, context, 1, static_cast<int>(state.range(4)), 16,
              kType);
  for (auto _ : state) setup.run(context - 1, 1);
  const int64_t token_bytes = entry_token_bytes({.dim = head_dim, .dtype = kType});
  state.SetBytesProcessed(state.iterations() * context * kv_heads * token_bytes * 2);
}
BENCHMARK(BM_Decode<tensor::DType::kF8E4M3>)->Args({32, 8, 128, 16384, 1})->UseRealTime();
BENCHMARK(BM_Decode<tensor::DType::kI8>)->Args({32, 8, 128, 16384, 1})->UseRealTime();
BENCHMARK(BM_Decode<tensor::DType::kBF16>)
    ->Args({9, 3, 64, 2000, 1})
    ->Args({9, 3, 64, 2000, 2})
    ->Args({32, 8, 128, 1024, 1})
    ->Args({32, 8, 128, 16384, 1})
    ->Args({32, 8, 128, 16384, 2})
    ->UseRealTime();

// Keys and values of a norm's size, the last rows attended: the relative error (L2) of each cache dtype against fp32.
void BM_CacheError(benchmark::State& state) {
  const auto dtype = static_cast<tensor::DType>(state.range(0));
  const int heads = 32, kv_heads = 8, head_dim = 128, rows = 8;
  const int64_t tokens = 512;
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> k(tokens * kv_heads * head_dim), v(k.size()), q(rows * heads * head_dim);
  for (auto* values : {&k, &v, &q}) {
    for (float& x : *values) x = normal(generator);
  }
  const auto attend = [&](tensor::DType type) {
    Setup setup(heads, kv_heads, head_dim, tokens, rows, 1, 16, type);
    setup.q = q;
    const SequenceSlice all = {.block_table = setup.table.data(), .row_count = static_cast<int>(tokens)};
    write_kv(setup.view, 0, {&all, 1}, k.data(), kv_heads * head_dim, v.data(), kv_heads * head_dim,
             tensor::detect_isa(), setup.pool);
    setup.run(tokens - rows, rows);
    return setup.out;
  };
  const auto exact = attend(tensor::DType::kF32);
  double difference = 0, size = 0;
  for (auto _ : state) {
    const auto got = attend(dtype);
    difference = size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference += std::pow(double{got[i]} - exact[i], 2);
      size += std::pow(double{exact[i]}, 2);
    }
  }
  state.SetLabel(std::string(tensor::dtype_name(dtype)));
  state.counters["relative_error"] = std::sqrt(difference / size);
}
BENCHMARK(BM_CacheError)
    ->Arg(static_cast<int>(tensor::DType::kF16))
    ->Arg(static_cast<int>(tensor::DType::kBF16))
    ->Arg(static_cast<int>(tensor::DType::kI8))
    ->Arg(static_cast<int>(tensor::DType::kF8E4M3))
    ->Iterations(1);

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
