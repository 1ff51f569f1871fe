// Tool calls of Kimi K2:
//   <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{json}<|tool_call_end|>
//   …<|tool_calls_section_end|>
// The header is the call's id. Arguments stream as they come, without whitespace around them.
#pragma once

#include "text/chat/parsers/event_writer.h"
#include "text/chat/parsers/marker_lexer.h"

namespace baton::text {

class KimiK2Tools final : public LexemeSink {
 public:
  explicit KimiK2Tools(EventWriter& writer) : writer_(writer) {}
  void take(const Lexeme& lexeme) override;
  void finish() override;

  static std::vector<MarkerSpelling> markers();

 private:
  enum class State : uint8_t { kContent, kBetween, kHeader, kArguments, kIgnoredCall };
  void take_text(std::string_view text);
  bool take_marker(Marker marker, bool is_token);
  void arguments(std::string_view text);
  void begin_call();
  void end_call(bool by_model);

  EventWriter& writer_;
  State state_ = State::kContent;
  LeadingSpace leading_;
  std::string header_;
  TailHold tail_;               // of the running call's arguments
  bool has_arguments_ = false;  // of the running call
};

}  // namespace baton::text
