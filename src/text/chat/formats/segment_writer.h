// Builds the segments of a native chat format.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_format.h"

namespace baton::text {

class SegmentWriter {
 public:
  // Whether text that follows text is one segment. Formats that are published as one string need it, since their text
  // is tokenised from marker to marker; where a format is published as segments, each is tokenised alone.
  enum class Texts { kJoined, kApart };
  explicit SegmentWriter(Texts texts) : joins_(texts == Texts::kJoined) {}

  void control(std::string_view text) { add(std::string(text), true); }
  void text(std::string text) { add(std::move(text), false); }
  std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  void add(std::string text, bool is_control) {
    if (text.empty()) return;
    if (joins_ && !is_control && !segments_.empty() && !segments_.back().is_control) {
      segments_.back().text += text;
    } else {
      segments_.push_back({std::move(text), is_control});
    }
  }
  bool joins_;
  std::vector<ChatSegment> segments_;
};

}  // namespace baton::text
