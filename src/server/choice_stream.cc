#include "server/choice_stream.h"

#include <algorithm>
#include <utility>

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
    case engine::FinishReason::kRecomputed:
      return "stop";
  }
  return "error";
}

ChoiceStream::ChoiceStream(const text::Tokenizer& tokenizer, const CommonFields& fields, bool tokens_as_ids,
                           OutputParsing parsing)
    : tokenizer_(&tokenizer),
      detokenizer_(tokenizer, fields.skip_special_tokens && !parsing.parser),
      stops_(fields.stop, fields.include_stop_str_in_output),
      parsing_(std::move(parsing)),
      skip_special_tokens_(fields.skip_special_tokens),
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

// A parser's markers are decoded whatever becomes of other special tokens.
std::string ChoiceStream::decode(TokenId token) {
  if (!parsing_.parser) return detokenizer_.push(token);
  const bool is_marker = parsing_.tokens != nullptr && parsing_.tokens->ids.contains(token);
  if (!is_marker && skip_special_tokens_ && tokenizer_->is_special(token)) return {};
  std::string text = detokenizer_.push(token);
  decoded_ += text.size();
  if (is_marker) marks_.push_back({decoded_ - tokenizer_->token_bytes(token).size(), decoded_});
  return text;
}

void ChoiceStream::show(std::string_view text, ChoiceDelta& delta) {
  delta.text += text;
  if (!parsing_.parser) return;
  while (!text.empty()) {
    const bool in_mark = !marks_.empty() && shown_ >= marks_.front().begin;
    const uint64_t until = marks_.empty() ? shown_ + text.size() : in_mark ? marks_.front().end : marks_.front().begin;
    const std::string_view part = text.substr(0, std::min<uint64_t>(text.size(), until - shown_));
    text.remove_prefix(part.size());
    shown_ += part.size();
    if (!in_mark) {
      parsing_.parser->push(part, false, delta.events);
      continue;
    }
    cut_mark_ += part;
    if (shown_ < marks_.front().end) continue;
    parsing_.parser->push(std::exchange(cut_mark_, {}), true, delta.events);
    marks_.pop_front();
  }
}

void ChoiceStream::end_parsing(ChoiceDelta& delta) {
  if (!parsing_.parser) return;
  if (!cut_mark_.empty()) parsing_.parser->push(std::exchange(cut_mark_, {}), false, delta.events);
  parsing_.parser->finish(delta.events);
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
    auto step = stops_.push(decode(token.token), completion_tokens_ >= min_tokens_);
    show(step.text, delta);
    if (step.matched) {
      end_parsing(delta);
      finished_ = ended_by_stop_string_ = true;
      delta.finish_reason = "stop";
      delta.stop_reason = *step.matched;
      return delta;
    }
  }
  if (output.finish == engine::FinishReason::kRecomputed) {
    // It goes on elsewhere: what is held back here is held back there, too.
    finished_ = true;
    delta.finish_reason = finish_reason_text(*output.finish);
    delta.stop_reason = std::string(kRecomputedReason);
    return delta;
  }
  if (output.finish) {
    const std::string last = detokenizer_.finish();
    decoded_ += last.size();
    auto step = stops_.push(last, completion_tokens_ >= min_tokens_);
    show(step.text, delta);
    show(stops_.finish(), delta);
    end_parsing(delta);
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
