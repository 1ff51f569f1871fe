#include "apps/serve/load_progress.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/log.h"

namespace baton::apps {

LoadProgress::LoadProgress(std::string doing, std::string done)
    : doing_(std::move(doing)),
      done_(std::move(done)),
      begin_(clock_.now()),
      drawn_(begin_),
      terminal_(isatty(STDERR_FILENO) == 1) {}

void LoadProgress::show(int64_t done, int64_t total) {
  total_ = total;
  const TimePoint now = clock_.now();
  const Duration pace = terminal_ ? Duration(std::chrono::milliseconds(50)) : Duration(std::chrono::seconds(5));
  if (now - drawn_ < pace) return;
  drawn_ = now;
  draw(done, total);
}

void LoadProgress::draw(int64_t done, int64_t total) const {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const double megabytes = static_cast<double>(done) / 1e6;
  if (!terminal_) {
    log_info("{}: {:.0f}% {:.0f} MB", doing_, share * 100, megabytes);
    return;
  }
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(share * kWidth);
  fmt::print(stderr, "\r{} [{}{}] {:3.0f}% {:.0f} MB", doing_, std::string(filled, '#'),
             std::string(kWidth - filled, '.'), share * 100, megabytes);
  std::fflush(stderr);
}

void LoadProgress::finish() {
  if (terminal_ && total_ > 0) {
    draw(total_, total_);
    fmt::print(stderr, "\n");
  }
  log_info("{}: {:.0f} MB in {:.2f} s", done_, static_cast<double>(total_) / 1e6,
           seconds_between(begin_, clock_.now()));
}

}  // namespace baton::apps
