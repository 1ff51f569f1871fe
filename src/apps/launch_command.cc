#include "apps/launch_command.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/launch_args.h"
#include "base/log.h"
#include "launcher/preflight.h"
#include "launcher/run_launch.h"

namespace baton::apps {
namespace {

int refuse(const Status& status, int code) {
  fmt::print(stderr, "baton launch: error: {}\n", status.message());
  return code;
}

}  // namespace

int launch_command(int argc, char** argv) {
  constexpr int kBadCommandLine = 2, kCanNotStart = 1;
  const auto parsed = parse_launch_args(std::vector<std::string>(argv, argv + argc));
  if (!parsed) return refuse(parsed.error(), kBadCommandLine);
  if (!parsed->help.empty()) {
    fmt::print("{}", parsed->help);
    return 0;
  }
  set_log_name("launch");
  const auto& plan = parsed->plan;
  const auto report = launcher::check_machine(plan);
  if (!report) return refuse(report.error(), kCanNotStart);
  for (const auto& warning : report->warnings) log_warning("{}", warning);
  if (parsed->dry_run) {
    for (const auto& child : plan.children) fmt::print("{}\n", launcher::command_text(plan, child));
    return 0;
  }
  const auto exit_code = launcher::run_launch(plan);
  if (!exit_code) return refuse(exit_code.error(), kCanNotStart);
  return *exit_code;
}

}  // namespace baton::apps
