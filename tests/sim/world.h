// The simulated world: one clock, one queue of events, one seed. Nothing in it waits, and nothing in it is concurrent:
// an event runs to its end before the next begins, so that a run is decided by its scenario alone.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sim/scenario.h"

namespace baton::sim {

// What a run may do wrong.
enum class Wrong : uint8_t {
  kTokens,     // a client got other tokens than the fault-free run gives, or in another form
  kSilent200,  // a 200 that is not all of an answer, and does not say so
  kHang,       // something waits without a deadline, or a request does not end
  kLeak,       // something is still held when all is over, or was given back twice
  kOther,      // a process died, a rule between the parts was broken, or good luck did not suffice
};
inline constexpr size_t kWrongs = 5;

class World {
 public:
  explicit World(const Scenario& scenario, bool print_trace);

  const Scenario& scenario() const { return scenario_; }
  TimePoint now() const { return now_; }
  void at(TimePoint when, std::function<void()> event) { events_.emplace(std::max(when, now_), std::move(event)); }
  void after(Duration delay, std::function<void()> event) { at(now_ + delay, std::move(event)); }
  // Runs the next event unless it lies behind `limit`. False when there is none.
  bool step(TimePoint limit);

  uint64_t random() { return random_(); }
  Duration between(Duration low, Duration high) {
    return low + Duration(static_cast<int64_t>(random_() % static_cast<uint64_t>((high - low).count() + 1)));
  }
  // Whether a fault of this kind strikes here and now. `node`: whose link it is.
  bool strikes(Fault fault, const std::string& node);
  // Of a fault that happens once.
  bool strikes_now(const FaultPlan& fault) {
    ++struck_[static_cast<size_t>(fault.fault)];
    return true;
  }
  bool faults_over() const;

  template <typename... Args>
  void trace(fmt::format_string<Args...> format, Args&&... args) {
    trace_line(fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void violation(Wrong wrong, fmt::format_string<Args...> format, Args&&... args) {
    auto text = fmt::format(format, std::forward<Args>(args)...);
    trace_line("VIOLATION " + text);
    violations_.push_back(std::move(text));
    ++wrongs_[static_cast<size_t>(wrong)];
  }
  const std::vector<std::string>& violations() const { return violations_; }
  const std::array<int, kWrongs>& wrongs() const { return wrongs_; }
  int64_t struck(Fault fault) const { return struck_[static_cast<size_t>(fault)]; }
  // A hash of all that was traced: two runs of a scenario give the same.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  void trace_line(std::string line);

  const Scenario& scenario_;
  const bool print_trace_;
  TimePoint now_{std::chrono::seconds(1000)};
  std::multimap<TimePoint, std::function<void()>> events_;
  std::mt19937_64 random_;
  std::vector<std::mt19937_64> fault_random_;  // of each fault its own, so that taking one away leaves the others
  std::array<int64_t, kFaults> struck_{};
  std::vector<std::string> violations_;
  std::array<int, kWrongs> wrongs_{};
  uint64_t fingerprint_ = 0;
};

// A simulated operating-system process: its clock, which may jump, and whether it runs at all. What it has scheduled
// dies with it.
class Process final : public Clock {
 public:
  Process(World& world, std::string name) : world_(world), name_(std::move(name)) {}

  World& world() { return world_; }
  const std::string& name() const { return name_; }
  TimePoint now() const override { return world_.now() + jumped_; }
  TimePoint to_world(TimePoint mine) const { return mine - jumped_; }
  void jump(Duration by) { jumped_ += by; }
  void pause(Duration length) { paused_until_ = std::max(paused_until_, world_.now() + length); }
  bool paused() const { return paused_until_ > world_.now(); }
  void begin_life() { life_ = std::make_shared<int>(0); }
  void end_life() { life_.reset(); }
  bool alive() const { return life_ != nullptr; }

  // Runs it in this life of the process or never; later where the process stands still.
  void after(Duration delay, std::function<void()> event) { at(world_.now() + delay, std::move(event)); }
  void at(TimePoint when, std::function<void()> event);

 private:
  void run(const std::weak_ptr<int>& life, std::function<void()> event);

  World& world_;
  const std::string name_;
  Duration jumped_{0};
  TimePoint paused_until_{};
  std::shared_ptr<int> life_;
};

}  // namespace baton::sim
