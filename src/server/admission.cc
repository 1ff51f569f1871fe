#include "server/admission.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"

namespace baton::server {

std::string client_of(const net::HttpRequest& request, bool keys_are_checked) {
  const auto key = request.headers.get("Authorization");
  // A key that nobody checks could be another one in each request.
  if (key && keys_are_checked) return "key " + to_hex(sha256(std::as_bytes(std::span(*key))));
  return "from " + request.peer.substr(0, request.peer.rfind(':'));
}

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
