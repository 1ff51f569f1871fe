// sim --seeds 0..399 [--kinds a,b] | --seed N [--kinds k] [--trace] | --list
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <string_view>

#include "base/log.h"
#include "sim/shrink.h"

namespace baton::sim {
namespace {

struct Options {
  uint64_t first = 0, last = 99;
  std::vector<std::string> kinds = scenario_kinds();
  bool trace = false, keep_going = false, twice = false, shrink = true;
};

struct Row {
  int runs = 0, failed = 0;
  RunCounts counts;
  int64_t struck = 0;
  std::array<int, kWrongs> wrongs{};
  double simulated_s = 0;
};

int usage() {
  fmt::print(stderr,
             "usage: sim [--seeds A..B | --seed N] [--kinds a,b,...] [--trace] [--twice] [--keep-going] "
             "[--no-shrink]\n           [--list]\n");
  return 2;
}

bool read_number(std::string_view text, uint64_t& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_seeds(std::string_view text, Options& options) {
  const auto dots = text.find("..");
  if (dots == std::string_view::npos) {
    if (!read_number(text, options.first)) return false;
    options.last = options.first;
    return true;
  }
  return read_number(text.substr(0, dots), options.first) && read_number(text.substr(dots + 2), options.last) &&
         options.first <= options.last;
}

bool read_kinds(std::string_view text, Options& options) {
  options.kinds.clear();
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    options.kinds.emplace_back(text.substr(0, comma));
    const auto& all = scenario_kinds();
    if (std::ranges::find(all, options.kinds.back()) == all.end()) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return !options.kinds.empty();
}

void explain(const Scenario& scenario, const Verdict& verdict, const Options& options) {
  fmt::print("\nFAILED seed {} kind {}: sim --seed {} --kinds {} --trace\n{}", scenario.seed, scenario.kind,
             scenario.seed, scenario.kind, verdict.report);
  if (options.trace || !options.shrink) return;
  const auto small = shrink(scenario);
  fmt::print("The smallest that still fails:\n{}", describe(small));
  fmt::print("{}\n", judge(small, /*trace=*/true).report);
}

void print_row(const std::string& kind, const Row& row) {
  const auto& c = row.counts;
  fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", kind, row.runs, row.struck,
             c.requests, c.full, c.errors, c.cut, c.left, c.handed_over, c.failed_pulls, c.checksum_failures + c.stale,
             c.resumes, fmt::join(row.wrongs, " | "));
}

void print_table(const std::map<std::string, Row>& rows, const std::vector<std::string>& kinds, double seconds) {
  fmt::print(
      "\n| kind | runs | faults | requests | in full | honest errors | cut, and said so | client left | pulls "
      "good | pulls failed | units refused | resumed | wrong tokens | silent 200s | hangs | leaks | other |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  Row all;
  for (const auto& kind : kinds) {
    const auto& row = rows.at(kind);
    print_row(kind, row);
    all.runs += row.runs;
    all.failed += row.failed;
    all.struck += row.struck;
    all.counts.add(row.counts);
    all.simulated_s += row.simulated_s;
    for (size_t i = 0; i < kWrongs; ++i) all.wrongs[i] += row.wrongs[i];
  }
  print_row("all together", all);
  const auto& c = all.counts;
  fmt::print(
      "\n{} runs, {} failed; requests: {} greedy, {} with a seed, {} without; {} leases ended, {} preemptions, {} "
      "sent back by D, {} prompts computed on D; {:.0f} simulated seconds in {:.1f} s\n",
      all.runs, all.failed, c.greedy, c.seeded, c.unseeded, c.expired, c.preemptions, c.sent_back, c.colocated,
      all.simulated_s, seconds);
}

int run(const Options& options) {
  const auto began = std::chrono::steady_clock::now();
  std::map<std::string, Row> rows;
  for (const auto& kind : options.kinds) rows[kind];
  int failed = 0;
  for (uint64_t seed = options.first; seed <= options.last; ++seed) {
    const auto scenario = make_scenario(seed, kind_of_seed(seed, options.kinds));
    auto& row = rows[scenario.kind];
    ++row.runs;
    if (options.trace) fmt::print("{}", describe(scenario));
    const auto verdict = judge(scenario, options.trace);
    row.counts.add(verdict.numbers.counts);
    row.simulated_s += verdict.numbers.simulated_s;
    for (const auto count : verdict.numbers.struck) row.struck += count;
    for (size_t i = 0; i < kWrongs; ++i) row.wrongs[i] += verdict.numbers.wrongs[i];
    const bool same = !options.twice || judge(scenario).numbers.fingerprint == verdict.numbers.fingerprint;
    if (!same) fmt::print("seed {}: two runs differ\n", seed);
    if (verdict.good && same) continue;
    ++row.failed;
    ++failed;
    explain(scenario, verdict, options);
    if (!options.keep_going) break;
  }
  print_table(rows, options.kinds, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return failed == 0 ? 0 : 1;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--trace") {
      options.trace = true;
    } else if (name == "--keep-going") {
      options.keep_going = true;
    } else if (name == "--no-shrink") {
      options.shrink = false;
    } else if (name == "--twice") {
      options.twice = true;
    } else if (name == "--list") {
      for (const auto& kind : scenario_kinds()) fmt::print("{}\n", kind);
      return 0;
    } else if ((name == "--seeds" || name == "--seed") && read_seeds(value, options)) {
      ++i;
    } else if (name == "--kinds" && read_kinds(value, options)) {
      ++i;
    } else {
      return usage();
    }
  }
  set_log_level(options.trace ? LogLevel::kWarning : static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  prepare_models();  // before the first child process
  return run(options);
}

}  // namespace
}  // namespace baton::sim

int main(int argc, char** argv) { return baton::sim::parse_and_run(argc, argv); }
