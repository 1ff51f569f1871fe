// One run of a scenario, and what must hold at its end.
#pragma once

#include <string>
#include <vector>

#include "sim/engine_node.h"

namespace baton::sim {

// Of plain numbers, so that a child process can write it into a pipe.
struct RunNumbers {
  std::array<int, kWrongs> wrongs{};
  RunCounts counts;
  std::array<int64_t, kFaults> struck{};
  uint64_t fingerprint = 0;  // of all events: two runs of a scenario give the same
  double simulated_s = 0;
};

struct RunResult {
  RunNumbers numbers;
  std::vector<std::string> violations;
};

RunResult run_scenario(const Scenario& scenario, bool print_trace = false);

}  // namespace baton::sim
