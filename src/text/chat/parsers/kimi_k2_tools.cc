#include "text/chat/parsers/kimi_k2_tools.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

namespace baton::text {
namespace {

// "functions.get_weather:0 " is the call "functions.get_weather:0" of get_weather.
struct Header {
  std::string id, name;
};

std::optional<Header> parse_header(std::string_view header) {
  header = without_spaces(header);
  header = header.substr(0, header.find('\n'));
  for (size_t colon = header.rfind(':'); colon != std::string_view::npos && colon > 0;
       colon = header.rfind(':', colon - 1)) {
    size_t end = colon + 1;
    while (end < header.size() && std::isdigit(static_cast<unsigned char>(header[end])) != 0) ++end;
    if (end == colon + 1) continue;
    std::string_view name = header.substr(0, colon);
    if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
    if (name.empty()) return std::nullopt;
    return Header{std::string(header.substr(0, end)), std::string(name)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<MarkerSpelling> KimiK2Tools::markers() {
  return {{Marker::kK2SectionBegin, "<|tool_calls_section_begin|>"},
          {Marker::kK2SectionEnd, "<|tool_calls_section_end|>"},
          {Marker::kK2CallBegin, "<|tool_call_begin|>"},
          {Marker::kK2ArgumentBegin, "<|tool_call_argument_begin|>"},
          {Marker::kK2CallEnd, "<|tool_call_end|>"}};
}

void KimiK2Tools::take(const Lexeme& lexeme) {
  if (lexeme.marker != Marker::kNone && take_marker(lexeme.marker, lexeme.is_token)) return;
  if (!lexeme.is_token) take_text(lexeme.text);
}

// False: the marker means nothing here.
bool KimiK2Tools::take_marker(Marker marker, bool is_token) {
  const bool in_call = state_ == State::kHeader || state_ == State::kArguments || state_ == State::kIgnoredCall;
  switch (marker) {
    case Marker::kK2SectionBegin:
      if (in_call) return false;
      leading_.drop();  // whitespace alone before a call is no answer
      state_ = State::kBetween;
      return true;
    case Marker::kK2CallBegin:
      if (state_ == State::kContent && !is_token) return false;
      end_call(true);
      leading_.drop();
      header_.clear();
      state_ = State::kHeader;
      return true;
    case Marker::kK2ArgumentBegin:
      if (state_ != State::kHeader) return false;
      begin_call();
      return true;
    case Marker::kK2CallEnd:
    case Marker::kK2SectionEnd:
      if (state_ == State::kContent) return false;
      if (state_ == State::kHeader) begin_call();
      end_call(true);
      state_ = State::kBetween;
      return true;
    default:
      return false;
  }
}

void KimiK2Tools::take_text(std::string_view text) {
  switch (state_) {
    case State::kContent:
      return leading_.content(text, writer_);
    case State::kHeader:
      header_ += text;
      return;
    case State::kArguments:
      return arguments(text);
    case State::kBetween:
    case State::kIgnoredCall:
      return;
  }
}

void KimiK2Tools::arguments(std::string_view text) {
  if (!has_arguments_) text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  if (text.empty()) return;
  has_arguments_ = true;
  writer_.arguments(tail_.pass(text));
}

void KimiK2Tools::begin_call() {
  auto header = parse_header(std::exchange(header_, {}));
  tail_.release();
  has_arguments_ = false;
  state_ = header ? State::kArguments : State::kIgnoredCall;
  if (header) writer_.begin_call(std::move(header->name), std::move(header->id));
}

void KimiK2Tools::end_call(bool by_model) {
  if (state_ != State::kArguments) return;
  if (!has_arguments_ && by_model) writer_.arguments("{}");
  writer_.end_call();
}

void KimiK2Tools::finish() {
  leading_.show(writer_);
  end_call(false);
  state_ = State::kBetween;
}

}  // namespace baton::text
