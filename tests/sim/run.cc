#include "sim/run.h"

#include "sim/checks.h"

namespace baton::sim {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart{seconds(1000)};
// Every wait has a deadline: with these faults no request takes longer, and nothing is held longer after the last.
constexpr Duration kLongest = seconds(400);
constexpr Duration kQuiet = seconds(150);

void plan_faults(World& world, std::map<std::string, std::unique_ptr<EngineNode>>& engines) {
  for (const auto& fault : world.scenario().faults) {
    if (fault.fault != Fault::kCrash && fault.fault != Fault::kPause && fault.fault != Fault::kClockJump) continue;
    auto* node = engines.at(fault.node).get();
    world.at(kStart + fault.begin, [&world, node, &fault] {
      if (!node->process().alive() || !world.strikes_now(fault)) return;
      if (fault.fault == Fault::kPause) return node->process().pause(fault.end - fault.begin);
      if (fault.fault == Fault::kClockJump) {
        world.trace("the clock of {} jumps", fault.node);
        node->process().jump(fault.amount);
        return node->clock_jumped();
      }
      node->crash();
      world.after(fault.amount, [node] { node->boot(); });
    });
  }
}

void check_end(World& world, const std::map<std::string, std::unique_ptr<EngineNode>>& engines, const ProxyNode& proxy,
               const RunCounts& counts) {
  for (const auto& [name, node] : engines) {
    if (const auto left = node->leftovers(); !left.empty())
      world.violation(Wrong::kLeak, "{} at the end:{}", name, left);
  }
  if (const auto left = proxy.leftovers(); !left.empty())
    world.violation(Wrong::kLeak, "the proxy at the end:{}", left);
  if (counts.mismatches != 0) world.violation(Wrong::kTokens, "{} first tokens differ from P's", counts.mismatches);
  if (!world.scenario().must_succeed) return;
  // Without faults nothing is lost, late or done again.
  const bool roomy = world.scenario().kind != "tiny-cache";
  if (roomy && counts.expired != 0) world.violation(Wrong::kOther, "{} leases ended without a fault", counts.expired);
  if (roomy && counts.failed_pulls != 0)
    world.violation(Wrong::kOther, "{} pulls failed without a fault", counts.failed_pulls);
  if (counts.checksum_failures + counts.stale != 0) world.violation(Wrong::kOther, "checks failed without a fault");
  if (roomy && counts.colocated != 0) world.violation(Wrong::kOther, "{} prompts were computed on D", counts.colocated);
}

bool all_quiet(const std::map<std::string, std::unique_ptr<EngineNode>>& engines) {
  return std::ranges::all_of(engines, [](const auto& each) { return each.second->leftovers().empty(); });
}

}  // namespace

RunResult run_scenario(const Scenario& scenario, bool print_trace) {
  World world(scenario, print_trace);
  HandoffNet net(world);
  DrawnSeeds seeds;
  std::map<std::string, std::unique_ptr<EngineNode>> engines;
  for (const auto& plan : scenario.engines) {
    auto& node = engines[plan.name] = std::make_unique<EngineNode>(world, net, plan, seeds);
    node->boot();
  }
  RunResult result;
  {
    ProxyNode proxy(world, engines);
    proxy.start();
    for (const auto& client : scenario.clients) {
      world.at(kStart + client.at, [&proxy, &client] { proxy.begin(client); });
    }
    plan_faults(world, engines);
    while (!(proxy.all_over() && world.faults_over()) && world.violations().empty() && world.step(kStart + kLongest)) {
    }
    if (!proxy.all_over())
      world.violation(Wrong::kHang, "a request has not ended after {} s", seconds(kLongest / seconds(1)).count());
    const TimePoint quiet_by = world.now() + kQuiet;
    while (world.violations().empty() && !all_quiet(engines) && world.step(quiet_by)) {
    }
    result.numbers.counts = proxy.counts();
    for (const auto& [name, node] : engines) result.numbers.counts.add(node->counts());
    if (world.violations().empty()) {
      Reference reference(scenario);
      for (const auto& client : scenario.clients) {
        check_client(world, client, proxy.view(client.id), seeds[client.id], reference, result.numbers.counts);
      }
      check_end(world, engines, proxy, result.numbers.counts);
    }
  }
  engines.clear();
  result.violations = world.violations();
  result.numbers.wrongs = world.wrongs();
  for (size_t i = 0; i < kFaults; ++i) result.numbers.struck[i] = world.struck(static_cast<Fault>(i));
  result.numbers.fingerprint = world.fingerprint();
  result.numbers.simulated_s = seconds_between(kStart, world.now());
  return result;
}

}  // namespace baton::sim
