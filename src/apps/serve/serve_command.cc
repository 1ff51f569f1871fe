#include "apps/serve/serve_command.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "apps/args/args_check.h"
#include "apps/serve/run_server.h"
#include "apps/serve/serve_setup.h"
#include "base/log.h"

namespace baton::apps {
namespace {

constexpr int kBadCommandLine = 2;

int refuse(const Status& status) {
  fmt::print(stderr, "baton serve: error: {}\n", status.message());
  return kBadCommandLine;
}

void report_start(const StartReport& report, const ServeSetup& setup) {
  for (const auto& warning : report.warnings) log_warning("{}", warning);
  for (const auto& warning : setup.topology.warnings) log_warning("{}", warning);
  for (const auto& line : report.inert) log_info("inert flag {}", line);
  for (const auto& note : setup.topology.notes) log_info("{}", note);
  const auto& listen = setup.server.http.listen;
  const bool beyond_loopback = listen.unix_path.empty() && !listen.host.starts_with("127.") && listen.host != "::1" &&
                               listen.host != "localhost";
  if (beyond_loopback && setup.server.api_keys.empty()) {
    log_warning("listening on {} without --api-key: anyone who reaches this port can use the model", listen.host);
  }
}

// Until the server takes the signals over there is nothing to end in order. As the first process of a container this
// one would otherwise ignore them for as long as the weights load.
void stop_at_once_when_told() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { std::_Exit(0); });
}

}  // namespace

int serve_command(int argc, char** argv, bool as_vllm) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const auto parsed = parse_arguments(arguments);
  if (!parsed) return refuse(parsed.error());
  if (parsed->help) {
    fmt::print("{}", help_text(*parsed->help));
    return 0;
  }
  const auto report = check_arguments(*parsed);
  if (!report) return refuse(report.error());
  if (parsed->has("log-level") && !set_log_level(parsed->value("log-level"))) {
    return refuse(Status(Code::kInvalidArgument, "argument --log-level: invalid choice: '" +
                                                     parsed->value("log-level") +
                                                     "' (choose from debug, info, warning, error)"));
  }
  if (const auto level = process_environment("VLLM_LOGGING_LEVEL"); !level.empty() && !parsed->has("log-level")) {
    set_log_level(level);
  }
  stop_at_once_when_told();
  auto setup = make_serve_setup(*parsed, as_vllm, process_environment);
  if (!setup) return refuse(setup.error());
  report_start(*report, *setup);
  if (const auto served = run_server(std::move(*setup)); !served) {
    log_error("baton serve: {}", served.error().message());
    return 1;
  }
  return 0;
}

}  // namespace baton::apps
