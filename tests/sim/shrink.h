// Runs scenarios in processes of their own, so that a check of the product that aborts is a finding like any other, and
// makes failing ones small.
#pragma once

#include "sim/run.h"

namespace baton::sim {

struct Verdict {
  bool good = true;
  RunNumbers numbers;  // of a process that died: that it did
  std::string report;  // violations, or how the process ended
};
// In a child process; `trace`: it prints its events.
Verdict judge(const Scenario& scenario, bool trace = false);
// Leaves out faults and clients while it still fails.
Scenario shrink(Scenario scenario);

}  // namespace baton::sim
