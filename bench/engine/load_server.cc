// An engine in process that runs the loads it is told on its standard input, one a line, for a comparison that asks
// two sides in turn (bench/compare/). Between loads its threads sleep.
//   load_server MODEL [THREADS, default 1]
//   in:  REQUESTS PROMPT OUTPUT            out: rates, prefill tokens/s, decode tokens/s
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "engine_load.h"

namespace baton::bench {
namespace {

int serve(const std::string& model, int threads) {
  auto engine = start_engine({.model_path = model, .threads = threads});
  if (!engine) {
    fmt::print(stderr, "{}\n", engine.error().to_string());
    return 1;
  }
  fmt::print("ready\n");
  std::fflush(stdout);
  int requests = 0, prompt = 0, output = 0;
  for (uint64_t seed = 1; std::scanf("%d %d %d", &requests, &prompt, &output) == 3; ++seed) {
    if (requests < 1 || prompt < 1 || output < 1) return 2;
    const Rates rates = measure(**engine, requests, prompt, output, seed);
    fmt::print("rates {:.3f} {:.3f}\n", rates.prefill, rates.decode);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print("usage: load_server MODEL [THREADS]\n");
    return 2;
  }
  baton::set_log_level(baton::LogLevel::kError);
  return baton::bench::serve(argv[1], argc > 2 ? std::atoi(argv[2]) : 1);
}
