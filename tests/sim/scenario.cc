#include "sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace baton::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kVocabulary = 97;
constexpr std::array<std::string_view, kFaults> kNames = {"drop",  "delay", "reorder",    "duplicate", "corrupt",
                                                          "tear",  "cut",   "http-lost",  "http-cut",  "crash",
                                                          "pause", "slow",  "clock-jump", "full"};

class Maker {
 public:
  Maker(uint64_t seed, const std::string& kind) : random_(seed ^ 0x5157), made_{.seed = seed, .kind = kind} {}

  Scenario make() {
    const std::string& kind = made_.kind;
    made_.must_succeed = kind == "calm" || kind == "thin-link" || kind == "tiny-cache";
    engines();
    clients();
    for (int i = static_cast<int>(kFaults) - 1; i >= 0; --i) {
      const auto fault = static_cast<Fault>(i);
      if (kind == fault_name(fault)) add(fault, 1 + below(2));
      if (kind == "all" && below(3) == 0) add(fault, 1);
    }
    if (kind == "abort" || kind == "all") leave();
    if (kind == "dead-end") dead_end();
    if (kind == "stale") lose_leases();
    return std::move(made_);
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  bool coin() { return below(2) == 0; }

  void engines() {
    const bool stale = made_.kind == "stale";
    const bool tiny = made_.kind == "tiny-cache" || (made_.kind == "all" && below(3) == 0);
    const int model = below(6);
    made_.llama = model == 0;
    made_.state_layers = model == 1 || model == 2 ? 2 : 0;
    made_.shared_memory = made_.kind != "thin-link" && (stale || coin());
    if (stale) made_.lease = milliseconds(200 + below(300));
    if (made_.kind == "thin-link") {
      made_.frame_time = milliseconds(60);
      made_.lease = milliseconds(1500);
    }
    const int prefill = 1 + below(2), decode = made_.kind == "calm" ? 1 + below(2) : 1 + below(3);
    const int sizes[][2] = {{4, 4}, {8, 4}, {4, 8}};
    const auto* size = sizes[below(3)];
    for (int i = 0; i < prefill + decode; ++i) {
      const bool is_prefill = i < prefill;
      EnginePlan engine{.name = fmt::format("{}{}", is_prefill ? "p" : "d", is_prefill ? i : i - prefill),
                        .prefill = is_prefill,
                        .block_size = size[is_prefill ? 0 : 1]};
      engine.blocks = 1024 / engine.block_size;
      // What P gives back is soon another's.
      if (is_prefill && (stale || (!made_.must_succeed && below(3) == 0))) {
        engine.blocks = (96 + below(100)) / engine.block_size;
        engine.slots = 4 + below(4);
      }
      if (tiny && !is_prefill) {
        engine.blocks = (96 + below(40)) / engine.block_size;
        engine.slots = 5 + below(4);
        engine.recompute_scheduler = coin();
        if (!engine.recompute_scheduler && coin()) engine.preempt = 0.05;
      }
      made_.engines.push_back(std::move(engine));
    }
  }

  void clients() {
    const int count = 3 + below(10);
    for (int i = 1 + below(3); i > 0; --i) bursts_.push_back(milliseconds(below(2000)));
    std::vector<TokenId> shared;
    for (int i = 0; i < 24; ++i) shared.push_back(below(kVocabulary));
    for (int i = 0; i < count; ++i) {
      ClientPlan client{.id = i, .at = near_a_burst()};
      if (coin()) client.prompt.assign(shared.begin(), shared.begin() + 4 * below(7));
      for (int n = 2 + below(36); n > 0; --n) client.prompt.push_back(below(kVocabulary));
      client.max_tokens = 1 + below(24);
      client.stream = below(4) != 0;
      if (coin()) {
        client.temperature = 1;
        if (coin()) client.frequency_penalty = 0.5;
        if (coin()) client.seed = random_() >> 1;
      }
      made_.clients.push_back(std::move(client));
    }
  }

  void leave() {
    for (auto& client : made_.clients) {
      if (!coin()) continue;
      const int longest = 100000 >> below(8);
      client.leaves_after = microseconds(100 + below(longest));
    }
  }

  std::string some_engine() {
    return made_.engines[static_cast<size_t>(below(static_cast<int>(made_.engines.size())))].name;
  }

  void add(Fault fault, int count) {
    for (int i = 0; i < count; ++i) {
      FaultPlan plan{.id = static_cast<int>(made_.faults.size()), .fault = fault, .begin = milliseconds(below(1800))};
      plan.end = plan.begin + milliseconds(500 + below(2500));
      plan.chance = 0.02 + 0.01 * below(50);
      if (coin()) plan.node = some_engine();
      switch (fault) {
        case Fault::kCrash:
          plan.node = some_engine();
          plan.begin = near_a_burst();
          plan.amount = milliseconds(100 + below(3000));
          plan.end = plan.begin + plan.amount;
          break;
        case Fault::kPause:
          plan.node = some_engine();
          plan.begin = near_a_burst();
          plan.end = plan.begin + milliseconds(100 + below(5000));
          break;
        case Fault::kSlow:
          plan.node = some_engine();
          plan.chance = 1;
          break;
        case Fault::kClockJump:
          plan.node = some_engine();
          if (coin()) plan.begin = near_a_burst();
          plan.amount = milliseconds(below(3) == 0 ? 20000 : 100 + below(4000));
          break;
        case Fault::kDrop:
          if (below(4) == 0) plan.chance = 1;  // nothing gets through
          break;
        case Fault::kCut:
        case Fault::kHttpCut:
        case Fault::kHttpLost:
          plan.chance /= 4;
          break;
        default:
          break;
      }
      made_.faults.push_back(std::move(plan));
    }
  }

  // While requests are under way.
  Duration near_a_burst() {
    const Duration burst = bursts_[static_cast<size_t>(below(static_cast<int>(bursts_.size())))];
    return burst + microseconds(below(40000));
  }

  // D copies slowly out of P's memory while its heartbeats are lost: the leases end under its copies.
  void lose_leases() {
    for (const auto& engine : made_.engines) {
      if (!engine.prefill) {
        made_.faults.push_back({.id = static_cast<int>(made_.faults.size()),
                                .fault = Fault::kSlow,
                                .begin = Duration(0),
                                .end = seconds(4),
                                .node = engine.name});
      }
    }
    for (int i = 0; i < 2; ++i) {
      const Duration begin = near_a_burst();
      made_.faults.push_back({.id = static_cast<int>(made_.faults.size()),
                              .fault = Fault::kDrop,
                              .begin = begin,
                              .end = begin + milliseconds(200 + below(1500))});
    }
  }

  // All engines of one role are gone for a while.
  void dead_end() {
    const bool prefill = coin();
    const Duration begin = near_a_burst();
    for (const auto& engine : made_.engines) {
      if (engine.prefill != prefill) continue;
      const Duration away = milliseconds(1500 + below(4000));
      made_.faults.push_back({.id = static_cast<int>(made_.faults.size()),
                              .fault = Fault::kCrash,
                              .begin = begin + milliseconds(below(100)),
                              .end = begin + away,
                              .node = engine.name,
                              .amount = away});
    }
  }

  std::mt19937_64 random_;
  std::vector<Duration> bursts_;  // requests come in these
  Scenario made_;
};

}  // namespace

std::string_view fault_name(Fault fault) { return kNames[static_cast<size_t>(fault)]; }

const std::vector<std::string>& scenario_kinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> all = {"calm", "thin-link", "tiny-cache", "abort", "dead-end", "stale"};
    for (const auto name : kNames) all.emplace_back(name);
    all.emplace_back("all");
    return all;
  }();
  return kinds;
}

Scenario make_scenario(uint64_t seed, const std::string& kind) { return Maker(seed, kind).make(); }

std::string kind_of_seed(uint64_t seed, const std::vector<std::string>& kinds) { return kinds[seed % kinds.size()]; }

std::string describe(const Scenario& scenario) {
  const auto ms = [](Duration time) { return std::chrono::duration_cast<milliseconds>(time).count(); };
  std::string text = fmt::format("seed {} kind {} {} lease {} ms, {}\n", scenario.seed, scenario.kind,
                                 scenario.shared_memory ? "shared memory" : "frames", ms(scenario.lease),
                                 scenario.llama              ? "llama"
                                 : scenario.state_layers > 0 ? "hash model with state"
                                                             : "hash model");
  for (const auto& engine : scenario.engines) {
    text += fmt::format("  engine {}: {} blocks of {}, {} slots{}{}\n", engine.name, engine.blocks, engine.block_size,
                        engine.slots, engine.recompute_scheduler ? ", sends back" : "",
                        engine.preempt > 0 ? ", preempts at random" : "");
  }
  for (const auto& client : scenario.clients) {
    text += fmt::format("  client {} at {} ms: {} tokens, at most {} more, {}, temperature {}{}{}\n", client.id,
                        ms(client.at), client.prompt.size(), client.max_tokens, client.stream ? "stream" : "whole",
                        client.temperature, client.seed ? fmt::format(", seed {}", *client.seed) : "",
                        client.leaves_after ? fmt::format(", leaves after {} ms", ms(*client.leaves_after)) : "");
  }
  for (const auto& fault : scenario.faults) {
    text += fmt::format("  fault {} {} from {} to {} ms, chance {:.2f}, at {}, {} ms\n", fault.id,
                        fault_name(fault.fault), ms(fault.begin), ms(fault.end), fault.chance,
                        fault.node.empty() ? "any" : fault.node, ms(fault.amount));
  }
  return text;
}

}  // namespace baton::sim
