#include "text/chat/parsers/deepseek_tools.h"

#include <algorithm>

namespace baton::text {
namespace {
constexpr std::string_view kFence = "```json";
}  // namespace

std::vector<MarkerSpelling> DeepSeekTools::markers() {
  return {{Marker::kDeepSeekSectionBegin, "<｜tool▁calls▁begin｜>"},
          {Marker::kDeepSeekSectionEnd, "<｜tool▁calls▁end｜>"},
          {Marker::kDeepSeekCallBegin, "<｜tool▁call▁begin｜>"},
          {Marker::kDeepSeekSeparator, "<｜tool▁sep｜>"},
          {Marker::kDeepSeekCallEnd, "<｜tool▁call▁end｜>"}};
}

void DeepSeekTools::take(const Lexeme& lexeme) {
  if (lexeme.marker != Marker::kNone && take_marker(lexeme.marker)) return;
  if (!lexeme.is_token) take_text(lexeme.text);
}

// False: the marker means nothing here.
bool DeepSeekTools::take_marker(Marker marker) {
  switch (marker) {
    case Marker::kDeepSeekSectionBegin:
      if (state_ != State::kContent && state_ != State::kBetween) return false;
      leading_.drop();
      state_ = State::kBetween;
      return true;
    case Marker::kDeepSeekCallBegin:
      if (state_ == State::kContent) return false;
      end_call(true);
      header_.clear();
      state_ = State::kKind;
      return true;
    case Marker::kDeepSeekSeparator:
      if (state_ != State::kKind) return false;
      if (fenced_) {
        header_.clear();
        state_ = State::kHeader;
      } else {
        begin_call(header_);
      }
      return true;
    case Marker::kDeepSeekCallEnd:
    case Marker::kDeepSeekSectionEnd:
      if (state_ == State::kContent) return false;
      end_call(true);
      state_ = State::kBetween;
      return true;
    default:
      return false;
  }
}

void DeepSeekTools::take_text(std::string_view text) {
  switch (state_) {
    case State::kContent:
      return leading_.content(text, writer_);
    case State::kKind:
      header_ += text;
      return;
    case State::kHeader:
      return header(text);
    case State::kArguments:
      return arguments(text);
    case State::kBetween:
    case State::kIgnoredCall:
      return;
  }
}

void DeepSeekTools::header(std::string_view text) {
  const size_t seen = header_.size();
  header_ += text;
  const size_t fence = header_.find(kFence, seen - std::min(seen, kFence.size()));
  if (fence == std::string::npos) return;
  const std::string rest = header_.substr(fence + kFence.size());
  header_.resize(fence);
  begin_call(header_);
  take_text(rest);
}

void DeepSeekTools::arguments(std::string_view text) {
  if (!has_arguments_) text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  if (text.empty()) return;
  const std::string certain = tail_.pass(text);
  has_arguments_ |= !certain.empty();
  writer_.arguments(certain);
}

void DeepSeekTools::begin_call(std::string_view name) {
  name = without_spaces(name);
  tail_.release();
  has_arguments_ = false;
  state_ = name.empty() ? State::kIgnoredCall : State::kArguments;
  if (!name.empty()) writer_.begin_call(std::string(name), {});
}

void DeepSeekTools::end_call(bool by_model) {
  if (state_ != State::kArguments) return;
  if (!has_arguments_ && by_model) writer_.arguments("{}");
  writer_.end_call();
}

void DeepSeekTools::finish() {
  leading_.show(writer_);
  end_call(false);
  state_ = State::kBetween;
}

}  // namespace baton::text
