#include "launcher/launch_plan.h"

#include <algorithm>

namespace baton::launcher {
namespace {

constexpr int kMostRanks = 1024;
constexpr int kLowestPort = 1024, kHighestPort = 65535;  // vLLM's own bounds of --port

Result<void> check_range(const char* flag, int64_t value, int64_t lowest, int64_t highest) {
  if (value >= lowest && value <= highest) return {};
  return fail(Code::kInvalidArgument, "argument {}: {} is not from {} to {}", flag, value, lowest, highest);
}

Result<void> check(const LaunchOptions& options) {
  BATON_TRY(check_range("--dp-size", options.dp_size, 1, kMostRanks));
  BATON_TRY(check_range("--tp-size", options.tp_size, 1, kMostRanks));
  if (options.dp_size_local != options.dp_size || options.dp_size_local < 1) {
    BATON_TRY(check_range("--dp-size-local", options.dp_size_local, 1, options.dp_size));
  }
  BATON_TRY(check_range("--dp-rank-start", options.dp_rank_start, 0, options.dp_size - 1));
  if (options.dp_rank_start + options.dp_size_local > options.dp_size) {
    return fail(Code::kInvalidArgument,
                "--dp-rank-start {} and --dp-size-local {} end at rank {}, but --dp-size is {}: the ranks of all hosts "
                "must cover 0 to {} without overlap",
                options.dp_rank_start, options.dp_size_local, options.dp_rank_start + options.dp_size_local - 1,
                options.dp_size, options.dp_size - 1);
  }
  BATON_TRY(check_range("--dp-rpc-port", options.dp_rpc_port, kLowestPort, kHighestPort));
  BATON_TRY(check_range("--vllm-start-port", options.start_port, kLowestPort, kHighestPort));
  const int last_port = options.start_port + options.dp_size_local - 1;
  if (last_port > kHighestPort) {
    return fail(Code::kInvalidArgument, "--vllm-start-port {}: {} local ranks would use ports up to {}",
                options.start_port, options.dp_size_local, last_port);
  }
  if (options.dp_address.empty()) {
    return fail(Code::kInvalidArgument, "--dp-address: the address of the host with rank 0 is needed");
  }
  if (options.dp_rpc_port >= options.start_port && options.dp_rpc_port <= last_port) {
    return fail(Code::kInvalidArgument,
                "--dp-rpc-port {} is among the API ports {} to {} that --vllm-start-port gives the local ranks",
                options.dp_rpc_port, options.start_port, last_port);
  }
  return {};
}

std::string device_list(int first, int count) {
  std::string text;
  for (int device = first; device < first + count; ++device) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", device);
  }
  return text;
}

}  // namespace

Result<LaunchPlan> plan_launch(LaunchOptions options) {
  if (options.dp_size_local == -1) options.dp_size_local = options.dp_size;
  BATON_TRY(check(options));
  LaunchPlan plan{.options = options, .children = {}};
  for (int i = 0; i < options.dp_size_local; ++i) {
    PlannedChild child;
    child.dp_rank = options.dp_rank_start + i;
    child.port = options.start_port + i;
    child.name = fmt::format("dp{}", child.dp_rank);
    child.arguments = {device_list(i * options.tp_size, options.tp_size),
                       fmt::format("{}", child.port),
                       fmt::format("{}", options.dp_size),
                       fmt::format("{}", child.dp_rank),
                       options.dp_address,
                       fmt::format("{}", options.dp_rpc_port),
                       fmt::format("{}", options.tp_size)};
    child.log_file = fmt::format("{}/dp{}_port{}.log", options.log_dir, child.dp_rank, child.port);
    plan.children.push_back(std::move(child));
  }
  return plan;
}

std::string command_text(const LaunchPlan& plan, const PlannedChild& child) {
  return fmt::format("bash {} {}", plan.options.template_path, fmt::join(child.arguments, " "));
}

}  // namespace baton::launcher
