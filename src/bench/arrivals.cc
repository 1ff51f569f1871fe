#include "bench/arrivals.h"

#include <cmath>
#include <random>

namespace baton::bench {
namespace {

double rate_at(const ArrivalOptions& options, int64_t index, int64_t count) {
  if (options.ramp.empty()) return options.rate;
  const double progress = static_cast<double>(index) / static_cast<double>(std::max<int64_t>(1, count - 1));
  if (options.ramp == "linear") {
    return options.ramp_start_rps + (options.ramp_end_rps - options.ramp_start_rps) * progress;
  }
  return options.ramp_start_rps * std::pow(options.ramp_end_rps / options.ramp_start_rps, progress);
}

}  // namespace

Result<void> check_arrivals(const ArrivalOptions& options) {
  if (!(options.rate > 0)) return fail(Code::kInvalidArgument, "--request-rate must be above 0 (inf: all at once)");
  if (!(options.burstiness > 0)) return fail(Code::kInvalidArgument, "--burstiness must be above 0");
  if (options.ramp.empty()) return {};
  if (options.ramp != "linear" && options.ramp != "exponential") {
    return fail(Code::kInvalidArgument, "--ramp-up-strategy '{}': choose from linear, exponential", options.ramp);
  }
  if (std::isfinite(options.rate)) {
    return fail(Code::kInvalidArgument, "--ramp-up-strategy sets the rate: leave --request-rate out");
  }
  if (!(options.ramp_start_rps > 0) || !(options.ramp_end_rps >= options.ramp_start_rps) ||
      !std::isfinite(options.ramp_end_rps)) {
    return fail(Code::kInvalidArgument,
                "--ramp-up-start-rps {} and --ramp-up-end-rps {}: both above 0, the end not below the start",
                options.ramp_start_rps, options.ramp_end_rps);
  }
  return {};
}

std::vector<double> arrival_times(const ArrivalOptions& options, int64_t count) {
  std::mt19937_64 random(options.seed ^ 0x9E3779B97F4A7C15);
  std::vector<double> times;
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double rate = rate_at(options, i, count);
    if (std::isfinite(rate)) {
      now += std::isfinite(options.burstiness)
                 ? std::gamma_distribution<double>(options.burstiness, 1 / (rate * options.burstiness))(random)
                 : 1 / rate;
    }
    times.push_back(now);
  }
  if (options.ramp.empty() && now > 0) {
    const double scale = static_cast<double>(count) / options.rate / now;
    for (double& time : times) time *= scale;
  }
  return times;
}

}  // namespace baton::bench
