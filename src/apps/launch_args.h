// The command line of `baton launch`: the flags of vLLM-Ascend's launch_online_dp.py, and our own.
#pragma once

#include <string>
#include <vector>

#include "launcher/launch_plan.h"

namespace baton::apps {

struct LaunchArgs {
  launcher::LaunchPlan plan;
  bool dry_run = false;  // print what would be started
  std::string help;      // not empty: print it and end well
};

// `args` without the program's and the subcommand's name. kInvalidArgument names the flag and what it wants.
Result<LaunchArgs> parse_launch_args(std::vector<std::string> args);

}  // namespace baton::apps
