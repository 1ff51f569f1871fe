// Tool calls of Hermes and the Qwen family: <tool_call>{"name": …, "arguments": …}</tool_call>, as text.
#pragma once

#include <optional>

#include "text/chat/parsers/hermes_call.h"
#include "text/chat/parsers/marker_lexer.h"

namespace baton::text {

class HermesTools final : public LexemeSink {
 public:
  explicit HermesTools(EventWriter& writer) : writer_(writer) {}
  void take(const Lexeme& lexeme) override;
  void finish() override;

  static std::vector<MarkerSpelling> markers();

 private:
  void push(std::string_view text);
  void end_region(bool by_model, std::string_view end_marker);

  EventWriter& writer_;
  LeadingSpace leading_;
  std::optional<HermesCall> call_;  // inside <tool_call>
  std::string region_;              // its text until the call has begun: content, should it be no call
  bool called_ = false;             // text behind a call is not shown
};

}  // namespace baton::text
