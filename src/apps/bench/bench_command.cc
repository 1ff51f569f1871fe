#include "apps/bench/bench_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

namespace baton::apps {
namespace {

constexpr std::string_view kUsage =
    "usage: baton bench <what> [options]\n"
    "\n"
    "  serve        a load on a running server: latencies, throughput, goodput (flags and report as vLLM's)\n"
    "  latency      one batch in an engine of this process\n"
    "  throughput   a whole data set in an engine of this process\n"
    "  handoff      what the hand-off of KV moves per second, beside the machine's copies\n"
    "  kernels      what the kernels do, beside the machine's limits\n"
    "\n"
    "`baton bench <what> --help` tells its options; docs/bench.md tells more.\n";

}  // namespace

int bench_command(int argc, char** argv) {
  const std::string_view what = argc > 0 ? argv[0] : "";
  const int count = argc - 1;
  char** const arguments = argv + 1;
  if (what == "serve") return bench_serve_command(count, arguments);
  if (what == "latency") return bench_latency_command(count, arguments);
  if (what == "throughput") return bench_throughput_command(count, arguments);
  if (what == "handoff") return bench_handoff_command(count, arguments);
  if (what == "kernels") return bench_kernels_command(count, arguments);
  if (what == "--help" || what == "-h" || what == "help") {
    fmt::print("{}", kUsage);
    return 0;
  }
  for (const std::string_view known : {"sweep", "startup", "mm-processor"}) {
    if (what != known) continue;
    fmt::print(stderr, "baton bench {}: this command of vLLM is not in this version of Baton\n", what);
    return 2;
  }
  fmt::print(stderr, "{}{}", what.empty() ? "" : fmt::format("baton bench: unknown command '{}'\n\n", what), kUsage);
  return 2;
}

}  // namespace baton::apps
