// One request's sampling, worked out once at admission, and the token counts that penalties read. Engine thread; the
// sampler's threads only read it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/sampling/noise.h"

namespace baton::engine {

class SamplingState {
 public:
  // params.seed must be set. `prompt` is the prompt without resumed outputs, which come by accept().
  SamplingState(const SamplingParams& params, int prompt_index, int choice_index, std::span<const TokenId> prompt,
                std::span<const TokenId> eos_token_ids);

  // Takes a token into the outputs that penalties, bad words and min_tokens see.
  void accept(TokenId token);

  struct Seen {
    int outputs = 0;
    bool anywhere = false;  // in the prompt or the outputs
  };
  const SamplingParams& params() const { return params_; }
  const std::vector<TokenId>& outputs() const { return outputs_; }
  // Only kept when a penalty is set.
  const std::unordered_map<TokenId, Seen>& seen() const { return seen_; }
  // What min_tokens forbids: the model's end tokens and the request's stop tokens.
  const std::vector<TokenId>& end_ids() const { return end_ids_; }
  bool penalised() const { return penalised_; }
  bool greedy() const { return greedy_; }
  // Key of the next output's noise.
  NoiseKey noise_key() const;

 private:
  const SamplingParams params_;
  const uint32_t prompt_index_, choice_index_;
  std::vector<TokenId> end_ids_;
  std::vector<TokenId> outputs_;
  std::unordered_map<TokenId, Seen> seen_;
  bool penalised_ = false;
  bool greedy_ = false;
};

}  // namespace baton::engine
