// Attention over paged keys and values, the error of its cache dtypes, norms (kernel_bench.h).
#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/bench_support.h"
#include "kernels/elementwise.h"
#include "kernels/math.h"
#include "tensor/buffer.h"

namespace baton::kernels {
namespace {

using tensor::DType;

struct Setup {
  PagedKvView view;
  tensor::Buffer bytes;
  std::vector<int32_t> table;
  std::vector<float> q, out;
  std::vector<std::byte> scratch;
  Bench& bench;
  int heads;

  Setup(int heads_, int kv_heads, int head_dim, int64_t tokens, int rows, Bench& bench_,
        tensor::DType dtype = tensor::DType::kBF16)
      : q(static_cast<size_t>(rows) * heads_ * head_dim, 0.1f),
        out(q.size()),
        scratch(attention_scratch_bytes(heads_, kv_heads, head_dim, bench_.options.threads)),
        bench(bench_),
        heads(heads_) {
    constexpr int block_size = 16;
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
                     .isa = bench.options.isa},
                    {&slice, 1}, scratch, bench.pool);
  }
};

struct Shape {
  int heads, kv_heads, head_dim;
};

// One generated token.
void bench_decode(const Shape& shape, int64_t context, DType dtype, Bench& bench) {
  const auto name = fmt::format("attention decode {} heads {}:{} x {} context {}", tensor::dtype_name(dtype),
                                shape.heads, shape.kv_heads, shape.head_dim, context);
  if (!bench.wants(name)) return;
  Setup setup(shape.heads, shape.kv_heads, shape.head_dim, context, 1, bench, dtype);
  const double seconds = seconds_of(bench.options.threads, 20, [&] { setup.run(context - 1, 1); });
  const int64_t token_bytes = entry_token_bytes({.dim = shape.head_dim, .dtype = dtype});
  bench.line(name, seconds, static_cast<double>(context * shape.kv_heads * token_bytes * 2),
             4.0 * shape.head_dim * shape.heads * static_cast<double>(context));
}

// A prompt from position 0.
void bench_prompt(const Shape& shape, int rows, Bench& bench) {
  const auto name =
      fmt::format("attention prompt bf16 heads {}:{} x {} rows {}", shape.heads, shape.kv_heads, shape.head_dim, rows);
  if (!bench.wants(name)) return;
  Setup setup(shape.heads, shape.kv_heads, shape.head_dim, rows, rows, bench);
  const double seconds = seconds_of(bench.options.threads, 3, [&] { setup.run(0, rows); });
  bench.line(name, seconds, 0, 4.0 * shape.head_dim * shape.heads * (static_cast<double>(rows) * (rows + 1) / 2));
}

void bench_norms(Bench& bench) {
  constexpr int64_t kRows = 64;
  for (int64_t features : {576, 4096}) {
    const auto name = fmt::format("rms_norm rows {} features {}", kRows, features);
    if (!bench.wants(name)) continue;
    std::vector<float> x(kRows * features, 0.5f), w(features, 1.0f), y(x.size());
    const double seconds = seconds_of(bench.options.threads, 50, [&] {
      rms_norm(x.data(), features, w.data(), 1e-5f, y.data(), features, kRows, features, bench.options.isa, bench.pool);
    });
    bench.line(name, seconds, static_cast<double>(kRows * features * 8), 0);
  }
  if (const std::string name = "silu_mul rows 64 features 4096"; bench.wants(name)) {
    std::vector<float> x(kRows * 4096, 0.5f), y(x.size());
    const double seconds = seconds_of(bench.options.threads, 50, [&] {
      silu_mul(x.data(), 4096, x.data(), 4096, y.data(), 4096, kRows, 4096, bench.options.isa, bench.pool);
    });
    bench.line(name, seconds, static_cast<double>(kRows * 4096 * 12), 0);
  }
  if (const std::string name = "exp of 4096"; bench.wants(name)) {
    std::vector<float> x(4096, -1.5f), y(4096);
    const double seconds = seconds_of(1, 200, [&] { exp_exact(x.data(), y.data(), 4096, bench.options.isa); });
    bench.line(name, seconds, 4096 * 8, 0);
  }
}

}  // namespace

void bench_attention(Bench& bench) {
  constexpr Shape kSmall{9, 3, 64}, kLarge{32, 8, 128};
  bench_decode(kSmall, 2000, DType::kBF16, bench);
  bench_decode(kLarge, 1024, DType::kBF16, bench);
  for (DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8}) bench_decode(kLarge, 16384, dtype, bench);
  bench_prompt(kSmall, 1024, bench);
  bench_prompt(kLarge, 2048, bench);
  bench_norms(bench);
}

// Keys and values of a norm's size, the last rows attended.
void bench_attention_errors(Bench& bench) {
  const int heads = 32, kv_heads = 8, head_dim = 128, rows = 8;
  const int64_t tokens = 512;
  const auto k = random_floats(tokens * kv_heads * head_dim, 3), v = random_floats(tokens * kv_heads * head_dim, 4),
             q = random_floats(int64_t{rows} * heads * head_dim, 5);
  std::vector<float> exact;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kF8E4M3}) {
    Setup setup(heads, kv_heads, head_dim, tokens, rows, bench, dtype);
    setup.q = q;
    const SequenceSlice all = {.block_table = setup.table.data(), .row_count = static_cast<int>(tokens)};
    write_kv(setup.view, 0, {&all, 1}, k.data(), kv_heads * head_dim, v.data(), kv_heads * head_dim, bench.options.isa,
             bench.pool);
    setup.run(tokens - rows, rows);
    if (dtype == DType::kF32) exact = setup.out;
    bench.error_line(fmt::format("error keys and values {}", tensor::dtype_name(dtype)), setup.out, exact);
  }
}

}  // namespace baton::kernels
