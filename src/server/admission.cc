#include "server/admission.h"

#include <algorithm>
#include <cmath>

namespace baton::server {

void Pace::observe(double seconds) {
  constexpr double kNewest = 0.1;
  const double before = mean_seconds_.load(std::memory_order_relaxed);
  // Two at once may lose one observation, which does no harm.
  mean_seconds_.store(before == 0 ? seconds : before + kNewest * (seconds - before), std::memory_order_relaxed);
}

int Pace::retry_after(const engine::EngineStats& stats, int max_running) const {
  const double rounds = std::ceil(static_cast<double>(stats.waiting) / std::max(1, max_running));
  return static_cast<int>(std::clamp(std::ceil(rounds * mean_seconds_.load(std::memory_order_relaxed)), 1.0, 60.0));
}

}  // namespace baton::server
