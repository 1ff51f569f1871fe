// `baton`: one binary, a subcommand per process of the system. Under the name `vllm` it behaves as vLLM's command does
// (it binds all interfaces where no host is given).
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string_view>

#include "apps/ask_command.h"
#include "apps/bench/bench_command.h"
#include "apps/launch_command.h"
#include "apps/make_checkpoint_command.h"
#include "apps/proxy_command.h"
#include "apps/quantize_command.h"
#include "apps/serve/serve_command.h"

namespace {

constexpr std::string_view kUsage =
    "usage: baton <command> [options]\n"
    "\n"
    "  serve MODEL      an engine with its OpenAI-compatible server; MODEL is a GGUF file, a folder or a cached id\n"
    "  proxy            the proxy in front of prefill and decode engines\n"
    "  launch           the data-parallel ranks of one host, each by a template\n"
    "  ask QUESTION     one question to a server, the answer streamed, and what it took\n"
    "  bench            serve, latency, throughput, handoff, kernels: loads, and what the machine shows\n"
    "  quantize IN OUT  a checkpoint of floats in one of the published quantised forms\n"
    "  make-checkpoint  a random checkpoint of a model family, at any size\n"
    "  version          this version\n"
    "\n"
    "`baton <command> --help` tells a command's options.\n";

}  // namespace

int main(int argc, char** argv) {
  const std::string program = std::filesystem::path(argv[0]).filename().string();
  const std::string_view command = argc > 1 ? argv[1] : "";
  const int count = argc - 2;
  char** const arguments = argv + 2;
  if (command == "serve") return baton::apps::serve_command(count, arguments, program == "vllm");
  if (command == "proxy") return baton::apps::proxy_command(count, arguments);
  if (command == "launch") return baton::apps::launch_command(count, arguments);
  if (command == "ask") return baton::apps::ask_command(count, arguments);
  if (command == "bench") return baton::apps::bench_command(count, arguments);
  if (command == "quantize") return baton::apps::quantize_command(count, arguments);
  if (command == "make-checkpoint") return baton::apps::make_checkpoint_command(count, arguments);
  if (command == "version" || command == "--version" || command == "-v") {
    fmt::print("{}\n", BATON_VERSION);
    return 0;
  }
  if (command == "help" || command == "--help" || command == "-h") {
    fmt::print("{}", kUsage);
    return 0;
  }
  for (const std::string_view known : {"chat", "complete", "run-batch", "collect-env"}) {
    if (command != known) continue;
    fmt::print(stderr, "{} {}: this command of vLLM is not in this version of Baton\n", program, known);
    return 2;
  }
  fmt::print(stderr, "{}{}", command.empty() ? "" : fmt::format("baton: unknown command '{}'\n\n", command), kUsage);
  return 2;
}
