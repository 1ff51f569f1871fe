// One line that tells how a load goes: redrawn on a terminal, silent elsewhere.
#pragma once

#include <cstdint>
#include <string>

namespace baton::bench {

struct ProgressFigures {
  int64_t done = 0, total = 0, failed = 0, running = 0, chunks = 0;
  double elapsed_s = 0;
  double chunks_per_s = 0;  // of late
};
// "[=====>     ] 12/100, 8 running, 3.1 req/s, 240 tok/s, 0:12 left, 1 failed"
std::string progress_line(const ProgressFigures& figures);

class ProgressLine {
 public:
  explicit ProgressLine(bool enabled);  // draws on stderr, and only where that is a terminal
  bool visible() const { return visible_; }
  void draw(const ProgressFigures& figures);
  void clear();

 private:
  bool visible_;
};

}  // namespace baton::bench
