#include "sim/shrink.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace baton::sim {
namespace {

static_assert(std::is_trivially_copyable_v<RunNumbers>);

constexpr unsigned kSecondsMax = 60;  // of one run: an endless loop is a finding, too

void write_all(int pipe, const void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const auto written = write(pipe, static_cast<const char*>(data) + at, bytes - at);
    if (written <= 0) _exit(3);
    at += static_cast<size_t>(written);
  }
}

// Writes the numbers, then the violations.
[[noreturn]] void run_child(const Scenario& scenario, bool trace, int pipe) {
  alarm(kSecondsMax);
  if (!trace && std::freopen("/dev/null", "w", stderr) == nullptr) _exit(3);
  const auto result = run_scenario(scenario, trace);
  std::string report;
  for (const auto& violation : result.violations) report += violation + "\n";
  std::fflush(stdout);
  write_all(pipe, &result.numbers, sizeof(result.numbers));
  write_all(pipe, report.data(), report.size());
  _exit(result.violations.empty() ? 0 : 1);
}

template <typename List>
bool leave_out(Scenario& scenario, List Scenario::* list, size_t least) {
  bool smaller = false;
  for (size_t i = 0; i < (scenario.*list).size() && (scenario.*list).size() > least;) {
    Scenario without = scenario;
    (without.*list).erase((without.*list).begin() + static_cast<long>(i));
    if (judge(without).good) {
      ++i;
    } else {
      scenario = std::move(without);
      smaller = true;
    }
  }
  return smaller;
}

}  // namespace

Verdict judge(const Scenario& scenario, bool trace) {
  int ends[2];
  if (pipe(ends) != 0) return {.good = false, .numbers = {}, .report = "no pipe"};
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) return {.good = false, .numbers = {}, .report = "no child process"};
  if (child == 0) {
    close(ends[0]);
    run_child(scenario, trace, ends[1]);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    said.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  Verdict verdict{.good = WIFEXITED(status) && WEXITSTATUS(status) == 0, .numbers = {}, .report = {}};
  if (said.size() >= sizeof(verdict.numbers)) {
    std::memcpy(&verdict.numbers, said.data(), sizeof(verdict.numbers));
    verdict.report = said.substr(sizeof(verdict.numbers));
  }
  if (WIFSIGNALED(status)) {
    ++verdict.numbers.wrongs[static_cast<size_t>(Wrong::kOther)];
    verdict.report += fmt::format("the process ended by signal {}\n", WTERMSIG(status));
  }
  return verdict;
}

Scenario shrink(Scenario scenario) {
  for (bool smaller = true; smaller;) {
    smaller = leave_out(scenario, &Scenario::faults, 0);
    smaller |= leave_out(scenario, &Scenario::clients, 1);
    for (size_t i = 0; i < scenario.clients.size(); ++i) {
      Scenario shorter = scenario;
      auto& client = shorter.clients[i];
      if (client.max_tokens <= 1) continue;
      client.max_tokens /= 2;
      if (judge(shorter).good) continue;
      scenario = std::move(shorter);
      smaller = true;
    }
  }
  return scenario;
}

}  // namespace baton::sim
