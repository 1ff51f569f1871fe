// Who is told to stop, when, and how it all ends: the launcher's decisions, with time as an argument. Pure.
//
// A child is a process group: a shell and what it started. It is gone when the group is empty, not when the shell is:
// SIGTERM ends a shell at once, while the server it ran still answers its last requests. Nothing is ever restarted.
//
//   running --(the shell ends)--> leaderless --(the group is empty)--> gone
//
// The first child that fails stops all others; so does a signal to the launcher. Each group gets the signal, then the
// grace, then SIGKILL. One that ends well stops nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace baton::launcher {

struct ExitStatus {
  int code = 0;
  int signal = 0;  // not 0: killed by it
  bool ok() const { return code == 0 && signal == 0; }
  int as_shell() const { return signal != 0 ? 128 + signal : code; }
  std::string text() const;  // "exit 3", "killed by SIGTERM"
};

// The only action: a signal to the process group of a child.
struct Action {
  int child = 0;
  int signal = 0;
  bool operator==(const Action&) const = default;
};

class Supervisor {
 public:
  enum class State : uint8_t { kRunning, kLeaderless, kGone };

  Supervisor(int children, Duration grace);

  // Events. Each returns what is to be done now.
  std::vector<Action> leader_exited(int child, ExitStatus status, TimePoint now);
  std::vector<Action> group_gone(int child);
  std::vector<Action> start_failed(int child, TimePoint now);  // counts as exit 127
  // The first is passed on; a second one kills.
  std::vector<Action> signalled(int signal, TimePoint now);
  std::vector<Action> tick(TimePoint now);

  State state(int child) const { return children_[static_cast<size_t>(child)].state; }
  bool finished() const;
  bool stopping() const { return stopping_; }
  // When tick has something to do; absent: nothing waits.
  std::optional<TimePoint> next_tick() const;
  // Once finished: that of the child that failed first; else that of one that did not end in order after a signal;
  // else 0.
  int exit_code() const;
  std::optional<int> first_failure() const { return first_failure_; }
  // "exit 3, failed first", "killed by SIGTERM, after SIGTERM", "never ended"
  std::string outcome(int child) const;

 private:
  enum class Asked : uint8_t { kNo, kNicely, kKilled };
  struct Child {
    State state = State::kRunning;
    Asked asked = Asked::kNo;
    TimePoint deadline;
    std::optional<ExitStatus> status;
    int signal = 0;      // what it was asked with
    bool stuck = false;  // outlived SIGKILL
  };

  void ask(int child, int signal, TimePoint now, std::vector<Action>& actions);
  void kill(int child, TimePoint now, std::vector<Action>& actions);
  std::vector<Action> stop_all(int signal, TimePoint now);
  bool ended_in_order(const Child& child) const;

  std::vector<Child> children_;
  Duration grace_;
  bool stopping_ = false;
  int signal_ = 0;  // that of the launcher
  std::optional<int> first_failure_;
};

}  // namespace baton::launcher
