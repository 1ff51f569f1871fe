// Log-probabilities of raw logits, before penalties, masks and temperature (vLLM's default, raw_logprobs).
//
// About one exp per vocabulary entry and row, 0.3 ms for 50 000 entries. Rows are independent; any thread.
#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"

namespace baton::engine {

struct RowLogprobs {
  TokenLogprob own;
  std::vector<TokenLogprob>
      top;  // best first, equal scores by the lower id; the own token is there if it is among them
};

// `top_count` -1 means the whole vocabulary. A token's rank is the number of tokens at least as likely, as in vLLM; in
// `top` it is the place.
RowLogprobs row_logprobs(std::span<const float> logits, TokenId own, int top_count);

}  // namespace baton::engine
