// Looks at the machine before anything is started: template, ports, cores.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/launch_plan.h"

namespace baton::launcher {

struct PreflightReport {
  std::vector<std::string> warnings;
};
// kNotFound: no such template; kUnavailable: a port is in use; kInvalidArgument: ranges that overlap.
Result<PreflightReport> check_machine(const LaunchPlan& plan);

}  // namespace baton::launcher
