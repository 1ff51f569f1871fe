// When each request of a load is sent: all at once, at a rate with gamma-distributed gaps, or at a rate that grows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::bench {

struct ArrivalOptions {
  double rate = 0;        // requests a second; infinity: all at once
  double burstiness = 1;  // shape of the gamma distribution; 1: Poisson, infinity: even gaps
  std::string ramp;       // "", "linear", "exponential"
  double ramp_start_rps = 0, ramp_end_rps = 0;
  uint64_t seed = 0;
};

Result<void> check_arrivals(const ArrivalOptions& options);
// Seconds after the start, ascending. At a steady rate the last one is at count / rate, as vLLM scales it.
std::vector<double> arrival_times(const ArrivalOptions& options, int64_t count);

}  // namespace baton::bench
