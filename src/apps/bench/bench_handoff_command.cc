// `baton bench handoff`: the hand-off's own speed, P and D in this process, beside the machine's.
#include <cstdio>

#include "apps/bench/bench_command.h"
#include "apps/bench/bench_flags.h"
#include "apps/bench/bench_output.h"
#include "base/log.h"
#include "bench/machine_limits.h"
#include "transfer/handoff_bench.h"

namespace baton::apps {
namespace {

struct HandoffFlags {
  transfer::HandoffBenchOptions options;
  std::string output_json;
  bool skip_limits = false, no_grids = false, no_machine = false;
};

void print_line(const transfer::HandoffLine& line, std::string& group) {
  if (line.group != group) fmt::print("\n{}\n", line.group);
  group = line.group;
  if (line.bytes == 0) {
    fmt::print("  {:<64} {:>25.1f} us\n", line.what, line.seconds * 1e6);
    return;
  }
  fmt::print("  {:<64} {:>8.1f} MB {:>9.2f} ms {:>7.2f} GB/s", line.what, static_cast<double>(line.bytes) / 1e6,
             line.seconds * 1e3, line.gbs());
  if (line.limit_gbs > 0) fmt::print("   {:.0f} % of the limit above", line.gbs() / line.limit_gbs * 100);
  fmt::print("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json line_json(const transfer::HandoffLine& line) {
  nlohmann::ordered_json json{{"group", line.group}, {"what", line.what}, {"seconds", line.seconds}};
  if (line.bytes > 0) {
    json["bytes"] = line.bytes;
    json["gbs"] = line.gbs();
  }
  if (line.limit_gbs > 0) json["limit_gbs"] = line.limit_gbs;
  return json;
}

Result<void> run(HandoffFlags& flags) {
  flags.options.grids = !flags.no_grids;
  flags.options.machine = !flags.no_machine;
  bench::MachineLimits limits;
  if (!flags.skip_limits) {
    limits = bench::measure_limits();
    fmt::print("{}", bench::limits_text(limits));
  }
  std::string group;
  auto lines = nlohmann::ordered_json::array();
  BATON_TRY(transfer::run_handoff_bench(flags.options, [&](const transfer::HandoffLine& line) {
    print_line(line, group);
    lines.push_back(line_json(line));
  }));
  if (flags.output_json.empty()) return {};
  nlohmann::ordered_json json{{"date", report_date()}, {"lines", std::move(lines)}};
  if (!flags.skip_limits) json["machine_limits"] = bench::limits_json(limits);
  return write_report(flags.output_json, json);
}

}  // namespace

int bench_handoff_command(int argc, char** argv) {
  HandoffFlags flags;
  CLI::App app{
      "Pull KV from a producer to a consumer of this process, verified, beside what the machine copies at most. Every "
      "line is the best of the rounds.",
      "baton bench handoff"};
  app.add_option("--megabytes", flags.options.megabytes, "Sizes of the KV")->expected(1, -1)->capture_default_str();
  app.add_option("--rounds", flags.options.rounds, "Runs of each line")->capture_default_str();
  app.add_flag("--no-grids", flags.no_grids, "Leave out pulls between unequal grids");
  app.add_flag("--no-machine", flags.no_machine, "Leave out memcpy, hashing and raw TCP at each size");
  app.add_option("--output-json", flags.output_json, "File for the result");
  app.add_flag("--skip-limits", flags.skip_limits, "Don't measure the machine first");
  if (const auto status = parse_bench_line(app, argc, argv)) return *status;
  set_log_level(LogLevel::kError);
  const auto outcome = run(flags);
  if (outcome) return 0;
  fmt::print(stderr, "baton bench handoff: {}\n", outcome.error().message());
  return outcome.error().code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace baton::apps
