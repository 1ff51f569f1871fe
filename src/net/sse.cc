#include "net/sse.h"

#include <fmt/format.h>

namespace baton::net {
namespace {

// The data of one event block: a part of it, or of `joined` when it has several data lines. Nothing when it has none.
std::optional<std::string_view> event_data(std::string_view block, std::string& joined) {
  std::optional<std::string_view> data;
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
    if (data) {
      if (data->data() != joined.data()) joined = *data;
      joined.append("\n").append(line);
      data = joined;
    } else {
      data = line;
    }
  }
  return data;
}

}  // namespace

std::string sse_event(std::string_view data) { return fmt::format("data: {}\n\n", data); }

std::vector<std::string> SseReader::feed(std::string_view bytes) {
  std::vector<std::string> events;
  append(bytes);
  while (const auto data = next()) events.emplace_back(*data);
  return events;
}

void SseReader::append(std::string_view bytes) {
  if (overflowed_) return;
  buffer_.erase(0, block_start_);
  scan_ -= block_start_;
  block_start_ = 0;
  buffer_ += bytes;
}

// buffer_ holds whole lines and a part of one. An event ends at an empty line, so at "\n" after "\n" or "\r\n".
std::optional<std::string_view> SseReader::next() {
  for (size_t newline; (newline = buffer_.find('\n', scan_)) != std::string::npos;) {
    scan_ = newline + 1;
    const size_t line_end = newline > block_start_ && buffer_[newline - 1] == '\r' ? newline - 1 : newline;
    const bool empty_line = line_end == block_start_ || buffer_[line_end - 1] == '\n';
    if (!empty_line) continue;
    const auto block = std::string_view(buffer_).substr(block_start_, line_end - block_start_);
    block_start_ = scan_;
    if (const auto data = event_data(block, joined_)) return data;
  }
  scan_ = buffer_.size();
  if (buffer_.size() - block_start_ > max_event_bytes_) {
    overflowed_ = true;
    buffer_ = {};
    block_start_ = scan_ = 0;
  }
  return std::nullopt;
}

}  // namespace baton::net
