// What ranks cost: one engine as one rank of one and of two threads, as two ranks of every kind with one thread each,
// and as two replicas. Every round measures all of them in turn; medians, and in brackets the ratio to one rank of two
// threads.
//   grid_bench MODEL [ROUNDS, default 5]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "engine_load.h"

namespace baton::bench {
namespace {

struct Load {
  const char* name;
  int requests, prompt, output;
  bool prefill;  // else: decode counts
};

constexpr Load kLoads[] = {{"prefill 1 x 512", 1, 512, 1, true}, {"prefill 4 x 512", 4, 512, 1, true},
                           {"decode 1", 1, 16, 48, false},       {"decode 2", 2, 16, 48, false},
                           {"decode 8", 8, 16, 32, false},       {"decode 32", 32, 16, 24, false}};

struct Layout {
  const char* name;
  EngineSetup setup;
  std::unique_ptr<engine::Engine> engine = nullptr;
  std::vector<std::vector<double>> rates = std::vector<std::vector<double>>(std::size(kLoads));
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run(const std::string& model, int rounds) {
  std::vector<Layout> layouts;
  layouts.push_back({"1 rank, 1 thread", {.model_path = model}});
  layouts.push_back({"1 rank, 2 threads", {.model_path = model, .threads = 2}});
  layouts.push_back({"tp2", {.model_path = model, .sizes = {.tp = 2}}});
  layouts.push_back({"pcp2", {.model_path = model, .sizes = {.pcp = 2}}});
  layouts.push_back({"tp2 dcp2", {.model_path = model, .sizes = {.tp = 2, .dcp = 2}}});
  layouts.push_back({"pp2", {.model_path = model, .sizes = {.pp = 2}}});
  layouts.push_back({"dp2", {.model_path = model, .sizes = {.dp = 2}}});
  for (auto& layout : layouts) {
    auto started = start_engine(layout.setup);
    if (!started) {
      fmt::print(stderr, "{}: {}\n", layout.name, started.error().to_string());
      continue;
    }
    layout.engine = std::move(*started);
  }
  std::erase_if(layouts, [](const Layout& layout) { return layout.engine == nullptr; });
  uint64_t seed = 1;
  for (auto& layout : layouts) measure(*layout.engine, 2, 64, 8, ++seed);
  for (int round = 0; round < rounds; ++round) {
    for (size_t l = 0; l < std::size(kLoads); ++l) {
      const Load& load = kLoads[l];
      for (auto& layout : layouts) {
        const auto rates = measure(*layout.engine, load.requests, load.prompt, load.output, ++seed);
        layout.rates[l].push_back(load.prefill ? rates.prefill : rates.decode);
      }
    }
  }
  fmt::print("{:<18}", "tokens/s");
  for (const auto& load : kLoads) fmt::print(" {:>16}", load.name);
  fmt::print("\n");
  for (const auto& layout : layouts) {
    fmt::print("{:<18}", layout.name);
    for (size_t l = 0; l < std::size(kLoads); ++l) {
      const double rate = median(layout.rates[l]);
      fmt::print(" {:>9.1f} [{:>4.2f}]", rate, rate / median(layouts[1].rates[l]));
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print("usage: grid_bench MODEL [ROUNDS]\n");
    return 2;
  }
  baton::set_log_level(baton::LogLevel::kError);
  baton::bench::run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 5);
  return 0;
}
