// Server-sent events: framing out, and an incremental reader that cuts by event, never by network piece.
#pragma once

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
  bool overflowed() const { return overflowed_; }

 private:
  size_t max_event_bytes_;
  std::string buffer_;
  bool overflowed_ = false;
};

}  // namespace baton::net
