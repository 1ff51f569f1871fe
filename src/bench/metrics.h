// What a load showed, by vLLM's definitions: TTFT is the first chunk after sending, TPOT spreads the rest over the
// later tokens, ITL is the gap between chunks (not tokens), E2EL ends with the last chunk. Percentiles are linear
// interpolations, as numpy's; deviations are the population's. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::bench {

// One request as the client saw it; all times in seconds.
struct RequestRecord {
  bool success = false;
  bool interrupted = false;  // neither a success nor a failure: the bench was stopped
  std::string error;
  int64_t prompt_tokens = 0, output_tokens = 0;
  double start_s = 0;  // sent, after the start of the load
  double queue_s = 0;  // waited in the client for --max-concurrency
  double ttft_s = 0, latency_s = 0;
  std::vector<double> itl_s;
  std::string text;
};

// Linear interpolation between the two nearest of `sorted`; 0 when it is empty. `percent` in [0, 100].
double percentile(std::span<const double> sorted, double percent);

struct Distribution {
  double mean = 0, median = 0, std = 0;
  std::vector<double> percentiles;  // in the order asked for
};
Distribution describe(std::vector<double> values, std::span<const double> percents);

struct ServeMetrics {
  int64_t completed = 0, failed = 0, interrupted = 0;
  int64_t input_tokens = 0, output_tokens = 0;
  double duration_s = 0;
  double request_throughput = 0, request_goodput = 0, output_throughput = 0, total_throughput = 0;
  double peak_output_per_s = 0;  // chunks in the busiest second
  int64_t peak_concurrent = 0;
  Distribution ttft, tpot, itl, e2el;  // milliseconds
};

// Milliseconds that a request must keep: "ttft", "tpot", "e2el".
using Goodput = std::map<std::string, double, std::less<>>;
// {"ttft:200", "tpot:20"}; kInvalidArgument names the bad one.
Result<Goodput> parse_goodput(std::span<const std::string> items);

ServeMetrics measure(std::span<const RequestRecord> records, double duration_s, std::span<const double> percents,
                     const Goodput& goodput);

}  // namespace baton::bench
