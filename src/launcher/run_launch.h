// Starts what a plan says, passes signals on, shows output, waits for the end: the loop around Supervisor. One thread,
// which must be the process's only one.
#pragma once

#include <functional>

#include "base/status.h"
#include "launcher/launch_plan.h"

namespace baton::launcher {

// The exit code of the whole (Supervisor::exit_code). Errors are those of before anything was started.
Result<int> run_launch(const LaunchPlan& plan);

}  // namespace baton::launcher
