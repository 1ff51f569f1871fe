#include "apps/launch_args.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace baton::apps {
namespace {

void describe(CLI::App& app, launcher::LaunchOptions& options, double& stop_timeout, bool& dry_run) {
  app.add_option("--dp-size", options.dp_size, "Data-parallel ranks of all hosts")->required();
  app.add_option("--tp-size", options.tp_size, "Tensor-parallel size of each ($7)")->capture_default_str();
  app.add_option("--dp-size-local", options.dp_size_local, "Ranks to start here; -1: all")->capture_default_str();
  app.add_option("--dp-rank-start", options.dp_rank_start, "The first rank here")->capture_default_str();
  app.add_option("--dp-address", options.dp_address, "Address of the host with rank 0 ($5)")->required();
  app.add_option("--dp-rpc-port", options.dp_rpc_port, "Port there ($6)")->capture_default_str();
  app.add_option("--vllm-start-port", options.start_port, "API port of the first rank here; the others follow ($2)")
      ->capture_default_str();
  app.add_option("--template", options.template_path, "Script that serves one rank (Baton's own)")
      ->capture_default_str();
  app.add_option("--log-dir", options.log_dir, "Folder of the ranks' log files (Baton's own)")->capture_default_str();
  app.add_option("--stop-timeout", stop_timeout, "Seconds between a stop and SIGKILL (Baton's own)")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--dry-run", dry_run, "Check, print the commands, start nothing (Baton's own)");
}

}  // namespace

Result<LaunchArgs> parse_launch_args(std::vector<std::string> args) {
  CLI::App app("Starts the data-parallel ranks of this host, each as `bash TEMPLATE $1 ... $7`.", "baton launch");
  launcher::LaunchOptions options;
  double stop_timeout = 30;
  LaunchArgs parsed;
  try {
    describe(app, options, stop_timeout, parsed.dry_run);
    std::ranges::reverse(args);  // as CLI11 wants it
    app.parse(args);
  } catch (const CLI::CallForHelp&) {
    return LaunchArgs{.plan = {}, .help = app.help()};
  } catch (const CLI::ParseError& error) {
    return fail(Code::kInvalidArgument, "{} (see baton launch --help)", error.what());
  }
  options.stop_timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(stop_timeout));
  BATON_TRY_ASSIGN(parsed.plan, launcher::plan_launch(std::move(options)));
  return parsed;
}

}  // namespace baton::apps
