#include "engine/sampling/sampling_state.h"

#include <algorithm>

#include "base/check.h"

namespace baton::engine {
namespace {

// vLLM: below 1e-5 is greedy, and other temperatures are at least 0.01.
SamplingParams with_bounds(SamplingParams params) {
  if (params.temperature < 1e-5f) {
    params.temperature = 0;
  } else {
    params.temperature = std::max(params.temperature, 0.01f);
  }
  for (auto& [token, bias] : params.logit_bias) bias = std::clamp(bias, -100.0f, 100.0f);
  return params;
}

}  // namespace

SamplingState::SamplingState(const SamplingParams& params, int prompt_index, int choice_index,
                             std::span<const TokenId> prompt, std::span<const TokenId> eos_token_ids)
    : params_(with_bounds(params)),
      prompt_index_(static_cast<uint32_t>(prompt_index)),
      choice_index_(static_cast<uint32_t>(choice_index)),
      end_ids_(eos_token_ids.begin(), eos_token_ids.end()),
      penalised_(params.presence_penalty != 0 || params.frequency_penalty != 0 || params.repetition_penalty != 1),
      greedy_(params_.temperature == 0) {
  BATON_CHECK(params_.seed.has_value());
  end_ids_.insert(end_ids_.end(), params_.stop_token_ids.begin(), params_.stop_token_ids.end());
  if (!penalised_) return;
  for (const auto token : prompt) seen_[token].anywhere = true;
}

void SamplingState::accept(TokenId token) {
  outputs_.push_back(token);
  if (!penalised_) return;
  auto& seen = seen_[token];
  ++seen.outputs;
  seen.anywhere = true;
}

NoiseKey SamplingState::noise_key() const {
  return {.seed = *params_.seed,
          .prompt_index = prompt_index_,
          .choice_index = choice_index_,
          .output_position = static_cast<uint32_t>(outputs_.size())};
}

}  // namespace baton::engine
