// From logits to tokens. Rows are independent: a row's token depends on its logits and its SamplingState alone, never
// on the batch, the threads or the machine.
//
// In vLLM's order: logit_bias, penalties (repetition, frequency, presence), masks (allowed ids, bad words, end tokens
// before min_tokens), temperature, min_p, top_k, top_p, then the Gumbel maximum. Equal scores go to the lower id.
//
// Greedy reads the row once: vocabulary * 4 bytes. Sampling adds one Philox call per
// four tokens (about 10 ns) and takes a logarithm only for the few tokens that could still win.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampling_state.h"

namespace baton::engine {

// One position to sample.
struct SampleTask {
  const float* logits = nullptr;  // [vocab]
  const SamplingState* state = nullptr;
  bool hash_logits = false;
  // Also the token of a request that must have one more: what a prefill engine samples, asked for one token by a
  // min_tokens that forbids it to end.
  bool also_before_end = false;
};

struct SampleResult {
  Result<TokenId> token = TokenId{0};  // kInternal: not a number in the logits; kInvalidArgument: nothing is allowed
  TokenId before_end = 0;
  std::optional<RowLogprobs> logprobs;
  uint64_t logits_hash = 0;
};

// One prompt position whose next token is known.
struct PromptTask {
  const float* logits = nullptr;  // [vocab]
  TokenId own = 0;
  int top_count = 0;
  bool hash_logits = false;
};

struct PromptResult {
  RowLogprobs logprobs;
  uint64_t logits_hash = 0;
};

// A thread's scratch, [vocab] each, allocated at its first use.
struct TokenScratch {
  std::vector<float> work;     // logits after bias, penalties and masks
  std::vector<float> scores;   // shifted and divided by the temperature
  std::vector<float> weights;  // their exponentials
};

class Sampler {
 public:
  Sampler(int vocab_size, int threads);
  // `results` as long as `tasks`. The pool's owner calls.
  void sample(std::span<const SampleTask> tasks, std::span<SampleResult> results, ComputePool& pool);
  void prompt(std::span<const PromptTask> tasks, std::span<PromptResult> results, ComputePool& pool) const;

 private:
  const int vocab_size_;
  std::vector<TokenScratch> scratch_;  // [threads]
};

// The token alone, for one row.
Result<TokenId> choose_token(std::span<const float> logits, const SamplingState& state, int min_tokens,
                             TokenScratch& scratch);

}  // namespace baton::engine
