// A progress bar for loading or writing weights: redrawn in place on a terminal, a few plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace baton::apps {

class LoadProgress {
 public:
  // The words for the work and for its end, in lower case.
  explicit LoadProgress(std::string doing = "loading weights", std::string done = "weights loaded");
  // Bytes done of bytes in all. One thread at a time.
  void show(int64_t done, int64_t total);
  void finish();

 private:
  void draw(int64_t done, int64_t total) const;

  std::string doing_, done_;
  SteadyClock clock_;
  TimePoint begin_;
  TimePoint drawn_;
  bool terminal_;
  int64_t total_ = 0;
};

}  // namespace baton::apps
