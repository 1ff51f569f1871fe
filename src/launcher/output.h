// Where children's output goes: whole into a file of each, and line by line, with a prefix, onto the console.
//
// The console may be slow or stopped: what does not fit its bounded queue is left out there, and said; the files have
// everything. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::launcher {

class Console {
 public:
  explicit Console(int descriptor) : descriptor_(descriptor) {}
  // A line with its end.
  void add(std::string_view line);
  bool pending() const { return !queue_.empty(); }
  int descriptor() const { return descriptor_; }
  // Writes what can be written without waiting, in pieces no larger than a pipe takes whole.
  void flush();
  // Writes everything, waiting at most `timeout_ms` for each piece.
  void finish(int timeout_ms);

 private:
  bool write_some(int timeout_ms);

  int descriptor_;
  std::string queue_;
  int64_t left_out_ = 0;  // lines
};

class ChildOutput {
 public:
  // Appends to the file, after a line that says what begins. `prefix`: "[dp3] ".
  static Result<ChildOutput> open(const std::string& file, std::string prefix, std::string_view first_line);
  ChildOutput(ChildOutput&& other) noexcept;
  ChildOutput& operator=(ChildOutput&&) = delete;
  ~ChildOutput();

  void take(std::string_view bytes, Console& console);
  // The rest of a line without an end.
  void finish(Console& console);
  const std::deque<std::string>& last_lines() const { return last_; }

 private:
  ChildOutput(int file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}
  void end_line(Console& console);

  int file_;
  std::string prefix_;
  std::string line_;
  std::deque<std::string> last_;
};

}  // namespace baton::launcher
