// <think>…</think> before the answer: kimi_k2, deepseek_r1 and deepseek_v3. Reasoning goes to the writer, everything
// after it to the next stage.
#pragma once

#include "text/chat/parsers/event_writer.h"
#include "text/chat/parsers/marker_lexer.h"

namespace baton::text {

struct ThinkRules {
  bool starts_inside = true;          // the prompt has opened the reasoning already, or the model does
  bool calls_end_it = false;          // kimi_k2: a tool section ends it too, without </think>
  bool strip_trailing_space = false;  // kimi_k2: whitespace before the end is dropped
  bool drop_stray_close = false;      // kimi_k2: a </think> in the answer is dropped
};

class ThinkStage final : public LexemeSink {
 public:
  ThinkStage(ThinkRules rules, EventWriter& writer, LexemeSink& next)
      : rules_(rules), writer_(writer), next_(next), inside_(rules.starts_inside) {}
  void take(const Lexeme& lexeme) override;
  void finish() override;

  static std::vector<MarkerSpelling> markers();

 private:
  void take_inside(const Lexeme& lexeme);
  void take_after(const Lexeme& lexeme);
  void reasoning(std::string_view text);

  ThinkRules rules_;
  EventWriter& writer_;
  LexemeSink& next_;
  bool inside_;
  TailHold space_;
};

}  // namespace baton::text
