#include "text/chat/parsers/think_stage.h"

namespace baton::text {

std::vector<MarkerSpelling> ThinkStage::markers() {
  return {{Marker::kThinkOpen, "<think>"}, {Marker::kThinkClose, "</think>"}};
}

void ThinkStage::take(const Lexeme& lexeme) { inside_ ? take_inside(lexeme) : take_after(lexeme); }

void ThinkStage::take_inside(const Lexeme& lexeme) {
  switch (lexeme.marker) {
    case Marker::kThinkOpen:
      return;
    case Marker::kThinkClose:
      inside_ = false;
      return;
    case Marker::kK2SectionBegin:
    case Marker::kK2CallBegin:
      // A bare call is believed only as a token: its spelling may be a thought about the format.
      if (!rules_.calls_end_it || (lexeme.marker == Marker::kK2CallBegin && !lexeme.is_token)) break;
      inside_ = false;
      next_.take(lexeme);
      return;
    default:
      break;
  }
  if (!lexeme.is_token) reasoning(lexeme.text);
}

void ThinkStage::reasoning(std::string_view text) {
  rules_.strip_trailing_space ? writer_.reasoning(space_.pass(text)) : writer_.reasoning(text);
}

void ThinkStage::take_after(const Lexeme& lexeme) {
  if (lexeme.marker == Marker::kThinkClose && (rules_.drop_stray_close || lexeme.is_token)) return;
  if (lexeme.marker == Marker::kThinkOpen || lexeme.marker == Marker::kThinkClose) {
    return next_.take({Marker::kNone, lexeme.text});
  }
  next_.take(lexeme);
}

void ThinkStage::finish() { next_.finish(); }

}  // namespace baton::text
