// What a token's choice costs at a vocabulary of 49 152 (SmolLM2) and 128 256 (Llama 3).
//
// The limit: one pass over the logits, 4 bytes each, at the read bandwidth of a core (about 30 GB/s): 6.5 and 17 us.
#include <benchmark/benchmark.h>

#include <random>

#include "engine/sampling/sampler.h"

namespace baton::engine {
namespace {

std::vector<float> make_logits(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(static_cast<size_t>(count));
  for (auto& logit : logits) logit = normal(random);
  return logits;
}

void choose(benchmark::State& bench, SamplingParams params) {
  const auto logits = make_logits(bench.range(0));
  params.seed = 1;
  SamplingState state(params, 0, 0, {}, {});
  TokenScratch scratch;
  for (auto _ : bench) {
    benchmark::DoNotOptimize(choose_token(logits, state, 0, scratch));
    state.accept(0);
  }
}

void logprobs(benchmark::State& bench) {
  const auto logits = make_logits(bench.range(0));
  for (auto _ : bench) benchmark::DoNotOptimize(row_logprobs(logits, 5, 20));
}

BENCHMARK_CAPTURE(choose, greedy, SamplingParams{.temperature = 0})->Arg(49152)->Arg(128256);
BENCHMARK_CAPTURE(choose, temperature, SamplingParams{.temperature = 1})->Arg(49152)->Arg(128256);
BENCHMARK_CAPTURE(choose, top_k_50, SamplingParams{.temperature = 1, .top_k = 50})->Arg(49152)->Arg(128256);
BENCHMARK_CAPTURE(choose, top_p_95, SamplingParams{.temperature = 1, .top_p = 0.95f})->Arg(49152)->Arg(128256);
BENCHMARK_CAPTURE(choose, min_p, SamplingParams{.temperature = 1, .min_p = 0.05f})->Arg(49152)->Arg(128256);
BENCHMARK(logprobs)->Arg(49152)->Arg(128256);

}  // namespace
}  // namespace baton::engine
