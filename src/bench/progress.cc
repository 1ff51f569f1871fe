#include "bench/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace baton::bench {

std::string progress_line(const ProgressFigures& figures) {
  constexpr int64_t kWidth = 20;
  const int64_t total = std::max<int64_t>(1, figures.total);
  const int64_t filled = std::clamp<int64_t>(figures.done * kWidth / total, 0, kWidth);
  std::string bar(static_cast<size_t>(filled), '=');
  if (filled < kWidth) bar += '>';
  bar.resize(static_cast<size_t>(kWidth), ' ');
  const double rate = figures.elapsed_s > 0 ? static_cast<double>(figures.done) / figures.elapsed_s : 0;
  std::string left = "?";
  if (rate > 0) {
    const auto seconds = static_cast<int64_t>(static_cast<double>(figures.total - figures.done) / rate + 0.5);
    left = fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  }
  auto line = fmt::format("[{}] {}/{}, {} running, {:.1f} req/s, {:.0f} tok/s, {} left", bar, figures.done,
                          figures.total, figures.running, rate, figures.chunks_per_s, left);
  if (figures.failed > 0) line += fmt::format(", {} failed", figures.failed);
  return line;
}

ProgressLine::ProgressLine(bool enabled) : visible_(enabled && isatty(STDERR_FILENO) == 1) {}

void ProgressLine::draw(const ProgressFigures& figures) {
  if (visible_) fmt::print(stderr, "\r\x1b[K{}", progress_line(figures));
}

void ProgressLine::clear() {
  if (visible_) fmt::print(stderr, "\r\x1b[K");
}

}  // namespace baton::bench
