// KDA, its gates and routing. KDA prints time per head and token, and GFLOP/s of its mul and three multiply-adds per
// element of S.
#include "kernels/kda.h"

#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/gated.h"
#include "kernels/mixing.h"
#include "kernels/router.h"
#include "tensor/buffer.h"

namespace baton::kernels {
namespace {

// The machine's limit beside BM_Kda: fp32 multiply-adds of one core, in the same GFLOP/s.
using Lanes = float __attribute__((vector_size(64)));
__attribute__((target("avx512f"))) void multiply_add_avx512(Lanes* sums, const float* factors) {
  const Lanes a = Lanes{} + factors[0], b = Lanes{} + factors[1];
  Lanes held[12];
  for (int i = 0; i < 12; ++i) held[i] = sums[i];
  for (int i = 0; i < 1000; ++i) {
    for (Lanes& sum : held) sum = __builtin_elementwise_fma(a, b, sum);
  }
  for (int i = 0; i < 12; ++i) sums[i] = held[i];
}
void BM_MultiplyAddPeak(benchmark::State& state) {
  if (tensor::detect_isa() < tensor::Isa::kAvx512) return state.SkipWithError("needs AVX-512");
  Lanes sums[12] = {};
  float factors[2] = {0.5f, 0.5f};
  benchmark::DoNotOptimize(factors);
  for (auto _ : state) {
    multiply_add_avx512(sums, factors);
    benchmark::DoNotOptimize(sums);
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 12 * 1000 * 32 / 1e9, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_MultiplyAddPeak);

// sequences, rows of each, heads, threads, isa; 128 x 128 a head as Kimi Linear and K3 have it.
void BM_Kda(benchmark::State& state) {
  const int sequences = static_cast<int>(state.range(0)), rows = static_cast<int>(state.range(1));
  const KdaShape shape{.heads = static_cast<int>(state.range(2)), .key_dim = 128, .value_dim = 128, .conv_width = 4};
  ComputePool pool({.threads = static_cast<int>(state.range(3))});
  const int64_t features = shape.key_features(), head_bytes = kda_state_head_bytes(128, 128, 4);
  auto states = tensor::Buffer::allocate(static_cast<size_t>(head_bytes * shape.heads * sequences));
  std::vector<float> x(static_cast<size_t>(sequences * rows * features), 0.3f), out(x.size());
  const std::vector<float> weights(static_cast<size_t>(features * 4), 0.25f);
  std::vector<SequenceSlice> slices;
  for (int i = 0; i < sequences; ++i) {
    slices.push_back({.context_len = 1, .row_begin = i * rows, .row_count = rows, .state_slot = i});
  }
  const KdaArgs args{
      .shape = shape,
      .decay = KdaDecay::kBoundedSigmoid,
      .lower_bound = -5,
      .q = x.data(),
      .k = x.data(),
      .v = x.data(),
      .q_stride = features,
      .k_stride = features,
      .v_stride = features,
      .decay_input = x.data(),
      .decay_stride = features,
      .beta = x.data(),
      .beta_stride = features,
      .q_conv = weights.data(),
      .k_conv = weights.data(),
      .v_conv = weights.data(),
      .dt_bias = weights.data(),
      .a_log = weights.data(),
      .state = {.base = states->data(), .slot_stride = head_bytes * shape.heads, .head_stride = head_bytes},
      .out = out.data(),
      .out_stride = features,
      .isa = static_cast<tensor::Isa>(state.range(4))};
  kda(args, slices, pool);  // touches every page
  for (auto _ : state) kda(args, slices, pool);
  const double tokens = static_cast<double>(state.iterations()) * sequences * rows * shape.heads;
  state.counters["s/head/token"] =
      benchmark::Counter(tokens, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["GFLOP/s"] = benchmark::Counter(tokens * 128 * 128 * 7 / 1e9, benchmark::Counter::kIsRate);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * sequences * shape.heads * head_bytes * 2);
}
BENCHMARK(BM_Kda)
    ->Args({1, 256, 8, 1, 2})
    ->Args({1, 256, 8, 1, 1})
    ->Args({1, 64, 2, 1, 0})
    ->Args({1, 1, 96, 1, 2})
    ->Args({8, 1, 96, 1, 2});

void BM_Route(benchmark::State& state) {
  const RouterSpec spec{.experts = static_cast<int>(state.range(0)),
                        .top_k = static_cast<int>(state.range(1)),
                        .groups = static_cast<int>(state.range(2)),
                        .top_groups = static_cast<int>(state.range(3)),
                        .renormalize = true};
  constexpr int kRows = 64;
  ComputePool pool({.threads = 1});
  std::vector<float> logits(static_cast<size_t>(kRows) * spec.experts), weights(kRows * spec.top_k);
  std::vector<int32_t> ids(weights.size());
  unsigned random = 1;
  for (auto _ : state) {
    state.PauseTiming();
    for (float& x : logits) x = static_cast<float>((random = random * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
    state.ResumeTiming();
    route(spec, nullptr, logits.data(), spec.experts, kRows, ids.data(), weights.data(), tensor::detect_isa(), pool);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * kRows);
}
BENCHMARK(BM_Route)->Args({256, 8, 8, 4})->Args({384, 8, 1, 1})->Args({896, 16, 1, 1});

void BM_Situ(benchmark::State& state) {
  ComputePool pool({.threads = 1});
  std::vector<float> x(16 * 3072, 0.5f), y(x.size());
  for (auto _ : state) {
    situ_mul(x.data(), 3072, x.data(), 3072, {}, y.data(), 3072, 16, 3072, static_cast<tensor::Isa>(state.range(0)),
             pool);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * 16 * 3072);
}
BENCHMARK(BM_Situ)->Arg(2)->Arg(1)->Arg(0);

// 16 slots of 3584 (K3's latent experts); 9 sources of 7168 (its attention residuals).
void BM_Combine(benchmark::State& state) {
  ComputePool pool({.threads = 1});
  std::vector<float> outputs(16 * 3584, 0.5f), weights(16, 0.1f), y(3584);
  std::vector<int32_t> places(16);
  for (int i = 0; i < 16; ++i) places[i] = 15 - i;
  for (auto _ : state) {
    combine_slots({.outputs = outputs.data(),
                   .outputs_stride = 3584,
                   .places = places.data(),
                   .weights = weights.data(),
                   .slots = 16,
                   .y = y.data(),
                   .y_stride = 3584,
                   .rows = 1,
                   .features = 3584,
                   .isa = tensor::detect_isa()},
                  pool);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * 17 * 3584 * 4);
}
BENCHMARK(BM_Combine);

void BM_Mix(benchmark::State& state) {
  ComputePool pool({.threads = 1});
  constexpr int64_t kRows = 16, kFeatures = 7168;
  std::vector<float> bank(kRows * 8 * kFeatures, 0.5f), last(kRows * kFeatures, 0.1f), y(last.size());
  const std::vector<float> weight(kFeatures, 0.01f);
  for (auto _ : state) {
    mix_sources({.bank = bank.data(),
                 .bank_row_stride = 8 * kFeatures,
                 .bank_count = 8,
                 .last = last.data(),
                 .last_stride = kFeatures,
                 .weight = weight.data(),
                 .y = y.data(),
                 .y_stride = kFeatures,
                 .rows = kRows,
                 .features = kFeatures,
                 .isa = tensor::detect_isa()},
                pool);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * kRows * 9 * kFeatures * 4);
}
BENCHMARK(BM_Mix);

}  // namespace
}  // namespace baton::kernels
