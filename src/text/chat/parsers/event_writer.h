// Where the stages of a parser write: joins neighbouring deltas of one kind. One thread, one parser.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "text/output_parser.h"

namespace baton::text {

class EventWriter {
 public:
  // Events go to `events` until the next call.
  void open(OutputEvents& events) { events_ = &events; }

  void reasoning(std::string_view text) { append(OutputEvent::Kind::kReasoning, text); }
  void content(std::string_view text) { append(OutputEvent::Kind::kContent, text); }
  void begin_call(std::string name, std::string id) {
    events_->push_back({OutputEvent::Kind::kCallBegin, std::move(name), std::move(id)});
  }
  void arguments(std::string_view text) { append(OutputEvent::Kind::kCallArguments, text); }
  void end_call() { events_->push_back({OutputEvent::Kind::kCallEnd, {}, {}}); }

 private:
  void append(OutputEvent::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (events_->empty() || events_->back().kind != kind) events_->push_back({kind, {}, {}});
    events_->back().text += text;
  }
  OutputEvents* events_ = nullptr;
};

// ASCII whitespace at the ends of `text`, as formats put it around markers.
inline constexpr std::string_view kSpaces = " \t\r\n\f\v";
inline std::string_view without_spaces(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// Holds the characters of `set` back until something else follows them.
class TailHold {
 public:
  explicit TailHold(std::string_view set = kSpaces) : set_(set) {}
  // What is certain to stay: what was held and `text`, up to the last character outside the set.
  std::string pass(std::string_view text) {
    const size_t last = text.find_last_not_of(set_);
    if (last == std::string_view::npos) {
      held_ += text;
      return {};
    }
    std::string certain = std::exchange(held_, std::string(text.substr(last + 1)));
    return certain += text.substr(0, last + 1);
  }
  std::string release() { return std::exchange(held_, {}); }

 private:
  std::string_view set_;
  std::string held_;
};

// Content before tool calls: whitespace at its start is shown only once other content follows it.
class LeadingSpace {
 public:
  void content(std::string_view text, EventWriter& writer) {
    if (!shown_ && text.find_first_not_of(kSpaces) == std::string_view::npos) {
      held_ += text;
      return;
    }
    shown_ = true;
    writer.content(std::exchange(held_, {}));
    writer.content(text);
  }
  void drop() { held_.clear(); }
  void show(EventWriter& writer) { writer.content(std::exchange(held_, {})); }

 private:
  bool shown_ = false;
  std::string held_;
};

}  // namespace baton::text
