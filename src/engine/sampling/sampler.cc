#include "engine/sampling/sampler.h"

#include <atomic>

#include "base/check.h"
#include "base/hash.h"

namespace baton::engine {
namespace {

uint64_t hash_row(std::span<const float> logits) { return xxh3_64(std::as_bytes(logits)); }

// Rows differ in cost by far, so threads take them one by one; a row's result does not depend on who takes it.
template <typename Body>
void for_each_row(size_t count, ComputePool& pool, const Body& body) {
  if (count == 0) return;
  if (count == 1) return body(0, 0);
  std::atomic<size_t> next{0};
  pool.run([&](int thread) {
    for (size_t row = next.fetch_add(1); row < count; row = next.fetch_add(1)) body(thread, row);
  });
}

}  // namespace

Sampler::Sampler(int vocab_size, int threads) : vocab_size_(vocab_size), scratch_(static_cast<size_t>(threads)) {
  BATON_CHECK(vocab_size > 0 && threads > 0, "vocab_size={} threads={}", vocab_size, threads);
}

void Sampler::sample(std::span<const SampleTask> tasks, std::span<SampleResult> results, ComputePool& pool) {
  BATON_CHECK(tasks.size() == results.size());
  for_each_row(tasks.size(), pool, [&](int thread, size_t row) {
    const auto& task = tasks[row];
    auto& result = results[row];
    auto& scratch = scratch_[static_cast<size_t>(thread)];
    const std::span logits(task.logits, static_cast<size_t>(vocab_size_));
    const auto& params = task.state->params();
    result.token = choose_token(logits, *task.state, params.min_tokens, scratch);
    if (!result.token) return;
    if (task.also_before_end) {
      const int one_more = static_cast<int>(task.state->outputs().size()) + 1;
      result.before_end =
          choose_token(logits, *task.state, std::max(params.min_tokens, one_more), scratch).value_or(-1);
    }
    if (params.logprobs) result.logprobs = row_logprobs(logits, *result.token, *params.logprobs);
    if (task.hash_logits) result.logits_hash = hash_row(logits);
  });
}

void Sampler::prompt(std::span<const PromptTask> tasks, std::span<PromptResult> results, ComputePool& pool) const {
  BATON_CHECK(tasks.size() == results.size());
  for_each_row(tasks.size(), pool, [&](int, size_t row) {
    const auto& task = tasks[row];
    const std::span logits(task.logits, static_cast<size_t>(vocab_size_));
    results[row].logprobs = row_logprobs(logits, task.own, task.top_count);
    if (task.hash_logits) results[row].logits_hash = hash_row(logits);
  });
}

}  // namespace baton::engine
