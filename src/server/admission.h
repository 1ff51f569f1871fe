// Who asks, and when one who is refused may ask again. Any thread.
#pragma once

#include <atomic>
#include <string>

#include "engine/engine.h"
#include "net/http.h"

namespace baton::server {

// Clients share the queue by this name: that of their key, or else their address without its port. Not the key itself:
// names appear in memory for longer than requests do.
std::string client_of(const net::HttpRequest& request, bool keys_are_checked);

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
