// Logprobs as the two routes write them.
#pragma once

#include <span>
#include <vector>

#include "server/choice_stream.h"

namespace baton::server {

// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}; offsets count bytes of text from `first_offset`.
Json completion_logprobs_json(const std::vector<LogprobEntry>& entries, int64_t first_offset);
// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}; at most `top` alternatives each.
Json chat_logprobs_json(const std::vector<LogprobEntry>& entries, int top);
// Entries of the prompt's tokens, the first without a logprob (NaN marks it).
std::vector<LogprobEntry> prompt_entries(const text::Tokenizer& tokenizer, std::span<const TokenId> ids,
                                         const std::vector<std::vector<engine::TokenLogprob>>& logprobs, int top);
// [null, {"<id>": {"logprob", "rank", "decoded_token"}, ...}, ...]
Json prompt_logprobs_json(const text::Tokenizer& tokenizer, std::span<const TokenId> ids,
                          const std::vector<std::vector<engine::TokenLogprob>>& logprobs);
Json stop_reason_json(const ChoiceDelta& delta);

}  // namespace baton::server
