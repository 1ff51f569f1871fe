#include "net/sse.h"

#include <fmt/format.h>

namespace baton::net {
namespace {

// The data of one event block, or false when it has no data line.
bool event_data(std::string_view block, std::string& data) {
  bool found = false;
  while (!block.empty()) {
    const auto end = block.find('\n');
    auto line = block.substr(0, end);
    block.remove_prefix(end == std::string_view::npos ? block.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.substr(0, 4) != "data") continue;
    line.remove_prefix(4);
    if (!line.empty() && line.front() != ':') continue;  // another field, such as "database"
    if (!line.empty()) line.remove_prefix(1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (found) data += '\n';
    data += line;
    found = true;
  }
  return found;
}

}  // namespace

std::string sse_event(std::string_view data) { return fmt::format("data: {}\n\n", data); }

// buffer_ holds whole lines and a part of one. An event ends at an empty line, so at "\n" after "\n" or "\r\n".
std::vector<std::string> SseReader::feed(std::string_view bytes) {
  std::vector<std::string> events;
  if (overflowed_) return events;
  // The line that new bytes continue may have begun before them: look again at the two bytes before.
  size_t scan = buffer_.size();
  buffer_ += bytes;
  size_t block_start = 0;
  for (size_t newline; (newline = buffer_.find('\n', scan)) != std::string::npos; scan = newline + 1) {
    const size_t line_end = newline > block_start && buffer_[newline - 1] == '\r' ? newline - 1 : newline;
    const bool empty_line = line_end == block_start || buffer_[line_end - 1] == '\n';
    if (!empty_line) continue;
    std::string data;
    if (event_data(std::string_view(buffer_).substr(block_start, line_end - block_start), data))
      events.push_back(std::move(data));
    block_start = newline + 1;
  }
  buffer_.erase(0, block_start);
  if (buffer_.size() > max_event_bytes_) {
    overflowed_ = true;
    buffer_.clear();
    buffer_.shrink_to_fit();
  }
  return events;
}

}  // namespace baton::net
