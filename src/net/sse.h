// Server-sent events: framing out, and an incremental reader that cuts by event, never by network piece.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::net {

// "data: <line>\n\n"; `data` must not hold a newline (JSON on one line does not).
std::string sse_event(std::string_view data);

// Feed bytes as they come; get the data of each complete event ("\n\n" or "\r\n\r\n" ends one; several data lines are
// joined by '\n'; comments are dropped).
class SseReader {
 public:
  // Largest event held; beyond it overflowed() is true and everything is dropped.
  explicit SseReader(size_t max_event_bytes = 16u << 20) : max_event_bytes_(max_event_bytes) {}
  std::vector<std::string> feed(std::string_view bytes);
  // The same without copies: after append(), next() until it says nothing. What it returns lives until the next call of
  // either.
  void append(std::string_view bytes);
  std::optional<std::string_view> next();
  bool overflowed() const { return overflowed_; }

 private:
  size_t max_event_bytes_;
  std::string buffer_;
  size_t block_start_ = 0;  // of the event at hand
  size_t scan_ = 0;         // up to here no event has ended
  std::string joined_;      // the data of an event of several data lines
  bool overflowed_ = false;
};

}  // namespace baton::net
