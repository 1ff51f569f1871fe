#include "sim/world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/hash.h"

namespace baton::sim {
World::World(const Scenario& scenario, bool print_trace)
    : scenario_(scenario), print_trace_(print_trace), random_(scenario.seed * 2 + 1) {
  for (const auto& fault : scenario.faults) {
    fault_random_.emplace_back(scenario.seed ^ (0x9e3779b97f4a7c15 * static_cast<uint64_t>(fault.id + 1)));
  }
}

bool World::step(TimePoint limit) {
  const auto first = events_.begin();
  if (first == events_.end() || first->first > limit) return false;
  now_ = std::max(now_, first->first);
  const auto event = std::move(first->second);
  events_.erase(first);
  event();
  return true;
}

bool World::strikes(Fault fault, const std::string& node) {
  const Duration time = now_ - TimePoint(std::chrono::seconds(1000));
  for (size_t i = 0; i < scenario_.faults.size(); ++i) {
    const auto& each = scenario_.faults[i];
    if (each.fault != fault || time < each.begin || time >= each.end || (!each.node.empty() && each.node != node)) {
      continue;
    }
    if (std::uniform_real_distribution<double>(0, 1)(fault_random_[i]) >= each.chance) continue;
    ++struck_[static_cast<size_t>(fault)];
    return true;
  }
  return false;
}

bool World::faults_over() const {
  const Duration time = now_ - TimePoint(std::chrono::seconds(1000));
  return std::ranges::all_of(scenario_.faults, [&](const auto& fault) { return time >= fault.end; });
}

void World::trace_line(std::string line) {
  const auto time = std::chrono::duration<double>(now_ - TimePoint(std::chrono::seconds(1000))).count();
  auto whole = fmt::format("{:10.6f} {}", time, line);
  fingerprint_ = fingerprint_ * 0x100000001b3 ^ xxh3_64(std::as_bytes(std::span(whole)));
  if (print_trace_) fmt::print("{}\n", whole);
}

void Process::at(TimePoint when, std::function<void()> event) {
  world_.at(when, [this, life = std::weak_ptr<int>(life_), event = std::move(event)]() mutable {
    run(life, std::move(event));
  });
}

void Process::run(const std::weak_ptr<int>& life, std::function<void()> event) {
  if (life.expired()) return;
  if (!paused()) return event();
  world_.at(paused_until_, [this, life, event = std::move(event)]() mutable { run(life, std::move(event)); });
}

}  // namespace baton::sim
