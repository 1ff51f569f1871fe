#include "server/choice_stream.h"

#include <algorithm>

namespace baton::server {

std::string finish_reason_text(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kAbort:
      return "abort";
    case engine::FinishReason::kError:
      return "error";
  }
  return "error";
}

ChoiceStream::ChoiceStream(const text::Tokenizer& tokenizer, const CommonFields& fields, bool tokens_as_ids)
    : tokenizer_(&tokenizer),
      detokenizer_(tokenizer, fields.skip_special_tokens),
      stops_(fields.stop, fields.include_stop_str_in_output),
      min_tokens_(fields.sampling.min_tokens),
      tokens_as_ids_(tokens_as_ids) {}

std::string ChoiceStream::spelling(const text::Tokenizer& tokenizer, TokenId token, bool as_id) {
  if (as_id) return fmt::format("token_id:{}", token);
  const auto bytes = tokenizer.token_bytes(token);
  return std::string(bytes.empty() ? tokenizer.token_spelling(token) : bytes);
}

LogprobEntry ChoiceStream::entry_of(const engine::GeneratedToken& token) const {
  // The floor keeps -inf out of JSON, as OpenAI-style servers do.
  const auto floor = [](float value) { return std::max(value, -9999.0f); };
  const auto make = [&](const engine::TokenLogprob& logprob) {
    return LogprobEntry{.token = spelling(*tokenizer_, logprob.token, tokens_as_ids_),
                        .bytes = std::string(tokenizer_->token_bytes(logprob.token)),
                        .logprob = floor(logprob.logprob)};
  };
  LogprobEntry entry = make(*token.logprob);
  for (const auto& top : token.top_logprobs) entry.top.push_back(make(top));
  return entry;
}

ChoiceDelta ChoiceStream::push(const engine::RequestOutput& output) {
  ChoiceDelta delta;
  for (const auto& token : output.tokens) {
    ++completion_tokens_;
    delta.token_ids.push_back(token.token);
    if (token.logprob) delta.logprobs.push_back(entry_of(token));
    // A stop token ends the text before itself: it is counted and listed, not shown.
    const bool is_stop_token = output.finish == engine::FinishReason::kStop && &token == &output.tokens.back();
    if (is_stop_token) break;
    auto step = stops_.push(detokenizer_.push(token.token), completion_tokens_ >= min_tokens_);
    delta.text += step.text;
    if (step.matched) {
      finished_ = ended_by_stop_string_ = true;
      delta.finish_reason = "stop";
      delta.stop_reason = *step.matched;
      return delta;
    }
  }
  if (output.finish) {
    auto step = stops_.push(detokenizer_.finish(), completion_tokens_ >= min_tokens_);
    delta.text += step.text;
    delta.text += stops_.finish();
    finished_ = true;
    delta.finish_reason = finish_reason_text(*output.finish);
    if (step.matched) {
      delta.finish_reason = "stop";
      delta.stop_reason = *step.matched;
    } else if (output.stop_token) {
      delta.stop_reason = *output.stop_token;
    }
  }
  return delta;
}

}  // namespace baton::server
