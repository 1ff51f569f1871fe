// What a launch will start: one child per local data-parallel rank, with the seven arguments of its template. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace baton::launcher {

struct LaunchOptions {
  int dp_size = 0;
  int tp_size = 1;
  int dp_size_local = -1;  // -1: dp_size
  int dp_rank_start = 0;
  std::string dp_address;
  int dp_rpc_port = 12345;
  int start_port = 9000;  // of the first local rank's API server; the others follow
  std::string template_path = "./run_dp_template.sh";
  std::string log_dir = "./logs";
  Duration stop_timeout = std::chrono::seconds(30);  // from the first signal to SIGKILL
};

struct PlannedChild {
  int dp_rank = 0;
  int port = 0;
  std::string name;                    // "dp3"
  std::vector<std::string> arguments;  // $1 to $7: devices, port, dp size, dp rank, address, rpc port, tp size
  std::string log_file;
};

struct LaunchPlan {
  LaunchOptions options;  // with every default resolved
  std::vector<PlannedChild> children;
};

// kInvalidArgument names the flag whose value is out of range.
Result<LaunchPlan> plan_launch(LaunchOptions options);
// "bash ./run_dp_template.sh 0,1 9000 2 0 10.0.0.1 12345 2"
std::string command_text(const LaunchPlan& plan, const PlannedChild& child);

}  // namespace baton::launcher
