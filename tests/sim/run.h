// One run of a scenario, and what must hold at its end.
#pragma once

#include <string>
#include <vector>

#include "sim/engine_node.h"

namespace baton::sim {

struct RunResult {
  std::vector<std::string> violations;
  RunCounts counts;
  std::array<int64_t, kFaults> struck{};
  uint64_t fingerprint = 0;
  double simulated_s = 0;
  std::vector<std::string> trace;  // the last lines
  bool good() const { return violations.empty(); }
};

RunResult run_scenario(const Scenario& scenario, bool print_trace = false);

}  // namespace baton::sim
