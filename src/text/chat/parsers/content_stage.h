// The last stage where no tool calls are looked for: everything is content.
#pragma once

#include "text/chat/parsers/event_writer.h"
#include "text/chat/parsers/marker_lexer.h"

namespace baton::text {

class ContentStage final : public LexemeSink {
 public:
  explicit ContentStage(EventWriter& writer) : writer_(writer) {}
  void take(const Lexeme& lexeme) override {
    if (!lexeme.is_token) writer_.content(lexeme.text);
  }
  void finish() override {}

 private:
  EventWriter& writer_;
};

}  // namespace baton::text
