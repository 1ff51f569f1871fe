// A progress bar for loading weights: redrawn in place on a terminal, a few plain lines elsewhere.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace baton::apps {

class LoadProgress {
 public:
  LoadProgress();
  // Bytes done of bytes in all. One thread at a time.
  void show(int64_t done, int64_t total);
  void finish();

 private:
  void draw(int64_t done, int64_t total) const;

  SteadyClock clock_;
  TimePoint begin_;
  TimePoint drawn_;
  bool terminal_;
  int64_t total_ = 0;
};

}  // namespace baton::apps
