#include "launcher/output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace baton::launcher {
namespace {

constexpr size_t kConsoleBytes = 1 << 20;
constexpr size_t kLongestLine = 16384;  // a longer one is cut into several
constexpr size_t kLinesKept = 10;

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // a full disk must not stop the launch
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

void Console::add(std::string_view line) {
  if (queue_.size() + line.size() > kConsoleBytes) {
    ++left_out_;
    return;
  }
  if (left_out_ > 0) {
    queue_ +=
        fmt::format("[launch] {} lines left out here: the console was too slow; the log files have them\n", left_out_);
    left_out_ = 0;
  }
  queue_ += line;
}

bool Console::write_some(int timeout_ms) {
  pollfd ready{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, timeout_ms) <= 0) return false;
  const ssize_t count = write(descriptor_, queue_.data(), std::min<size_t>(queue_.size(), PIPE_BUF));
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (count < 0) {
    queue_.clear();  // nobody reads any more
    return false;
  }
  queue_.erase(0, static_cast<size_t>(count));
  return true;
}

void Console::flush() {
  while (pending() && write_some(0)) {
  }
}

void Console::finish(int timeout_ms) {
  while (pending() && write_some(timeout_ms)) {
  }
}

Result<ChildOutput> ChildOutput::open(const std::string& file, std::string prefix, std::string_view first_line) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return fail(Code::kUnavailable, "log file {}: {}; choose a folder with --log-dir", file, std::strerror(errno));
  }
  write_all(descriptor, fmt::format("==== {}\n", first_line));
  return ChildOutput(descriptor, std::move(prefix));
}

ChildOutput::ChildOutput(ChildOutput&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      prefix_(std::move(other.prefix_)),
      line_(std::move(other.line_)),
      last_(std::move(other.last_)) {}

ChildOutput::~ChildOutput() {
  if (file_ >= 0) close(file_);
}

void ChildOutput::end_line(Console& console) {
  console.add(fmt::format("{}{}\n", prefix_, line_));
  last_.push_back(std::move(line_));
  line_.clear();
  if (last_.size() > kLinesKept) last_.pop_front();
}

void ChildOutput::take(std::string_view bytes, Console& console) {
  write_all(file_, bytes);
  for (const char c : bytes) {
    // A carriage return is a progress bar's: on a shared console each of its states is a line of its own.
    if (c == '\n' || c == '\r') {
      if (c == '\n' || !line_.empty()) end_line(console);
      continue;
    }
    line_ += c;
    if (line_.size() == kLongestLine) end_line(console);
  }
}

void ChildOutput::finish(Console& console) {
  if (!line_.empty()) end_line(console);
}

}  // namespace baton::launcher
