// When one who is refused may ask again. Any thread.
#pragma once

#include <atomic>

#include "engine/engine.h"

namespace baton::server {

// How long generations take of late.
class Pace {
 public:
  void observe(double seconds);
  // Seconds until the queue of now should be gone, from 1 to 60: for Retry-After.
  int retry_after(const engine::EngineStats& stats, int max_running) const;

 private:
  std::atomic<double> mean_seconds_{0};
};

}  // namespace baton::server
