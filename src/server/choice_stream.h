// One choice of an answer: token ids from the engine become text, stop strings end it, logprobs get their spelling.
// Pure; one thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "server/marker_tokens.h"
#include "server/request_fields.h"
#include "server/stop_matcher.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"

namespace baton::server {

// stop_reason of a request that left its engine and goes on elsewhere. Between engine and proxy only.
inline constexpr std::string_view kRecomputedReason = "recomputed";

struct LogprobEntry {
  std::string token;
  std::string bytes;
  float logprob = 0;
  std::vector<LogprobEntry> top;
};

struct ChoiceDelta {
  std::string text;
  text::OutputEvents events;  // the text taken apart, where it is parsed
  std::vector<TokenId> token_ids;
  std::vector<LogprobEntry> logprobs;
  std::optional<std::string> finish_reason;  // "stop", "length", "abort"
  std::variant<std::monostate, std::string, TokenId> stop_reason;
  bool empty() const { return text.empty() && events.empty() && token_ids.empty() && !finish_reason; }
};

// How a choice's text is taken apart; no parser: not at all.
struct OutputParsing {
  std::unique_ptr<text::OutputParser> parser;
  const MarkerTokens* tokens = nullptr;  // outlives the choice
};

class ChoiceStream {
 public:
  ChoiceStream(const text::Tokenizer& tokenizer, const CommonFields& fields, bool tokens_as_ids,
               OutputParsing parsing = {});
  // What is new. After a delta with finish_reason, nothing more may be pushed; if the end came from a stop string the
  // engine is still running: abort it.
  ChoiceDelta push(const engine::RequestOutput& output);
  bool finished() const { return finished_; }
  bool ended_by_stop_string() const { return ended_by_stop_string_; }
  int completion_tokens() const { return completion_tokens_; }

  // A token as logprobs show it.
  static std::string spelling(const text::Tokenizer& tokenizer, TokenId token, bool as_id);

 private:
  struct Mark {
    uint64_t begin, end;  // bytes of the decoded text
  };
  LogprobEntry entry_of(const engine::GeneratedToken& token) const;
  std::string decode(TokenId token);
  void show(std::string_view text, ChoiceDelta& delta);
  void end_parsing(ChoiceDelta& delta);

  const text::Tokenizer* tokenizer_;
  text::Detokenizer detokenizer_;
  StopMatcher stops_;
  // Stop strings are looked for in the text as it was generated, and hold parts of it back: where the marker tokens
  // stand in what is shown then is kept here.
  OutputParsing parsing_;
  std::deque<Mark> marks_;
  std::string cut_mark_;
  uint64_t decoded_ = 0, shown_ = 0;  // bytes
  bool skip_special_tokens_;
  int min_tokens_;
  bool tokens_as_ids_;
  bool finished_ = false;
  bool ended_by_stop_string_ = false;
  int completion_tokens_ = 0;
};

std::string finish_reason_text(engine::FinishReason reason);

}  // namespace baton::server
