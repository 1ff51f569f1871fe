// Tool calls of DeepSeek. V3 and R1 write the arguments as a fenced block:
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{json}\n```<｜tool▁call▁end｜>…
// V3.1 writes NAME before the separator and the bare arguments after it.
#pragma once

#include "text/chat/parsers/event_writer.h"
#include "text/chat/parsers/marker_lexer.h"

namespace baton::text {

class DeepSeekTools final : public LexemeSink {
 public:
  DeepSeekTools(bool fenced, EventWriter& writer) : fenced_(fenced), writer_(writer), tail_(kTail) {}
  void take(const Lexeme& lexeme) override;
  void finish() override;

  static std::vector<MarkerSpelling> markers();

 private:
  enum class State : uint8_t { kContent, kBetween, kKind, kHeader, kArguments, kIgnoredCall };
  static constexpr std::string_view kTail = " \t\r\n\f\v`";  // what may be the fence's end

  bool take_marker(Marker marker);
  void take_text(std::string_view text);
  void header(std::string_view text);
  void arguments(std::string_view text);
  void begin_call(std::string_view name);
  void end_call(bool by_model);

  bool fenced_;
  EventWriter& writer_;
  State state_ = State::kContent;
  LeadingSpace leading_;
  std::string header_;
  TailHold tail_;
  bool has_arguments_ = false;
};

}  // namespace baton::text
