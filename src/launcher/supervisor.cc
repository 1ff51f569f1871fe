#include "launcher/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace baton::launcher {
namespace {

constexpr Duration kAfterKill = std::chrono::seconds(5);

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

std::string ExitStatus::text() const {
  return signal != 0 ? fmt::format("killed by {}", signal_name(signal)) : fmt::format("exit {}", code);
}

Supervisor::Supervisor(int children, Duration grace) : children_(static_cast<size_t>(children)), grace_(grace) {}

void Supervisor::ask(int child, int signal, TimePoint now, std::vector<Action>& actions) {
  Child& one = children_[static_cast<size_t>(child)];
  if (one.state == State::kGone || one.asked != Asked::kNo) return;
  one.asked = Asked::kNicely;
  one.signal = signal;
  one.deadline = now + grace_;
  actions.push_back({.child = child, .signal = signal});
}

void Supervisor::kill(int child, TimePoint now, std::vector<Action>& actions) {
  Child& one = children_[static_cast<size_t>(child)];
  if (one.state == State::kGone || one.asked == Asked::kKilled) return;
  one.asked = Asked::kKilled;
  one.deadline = now + kAfterKill;
  actions.push_back({.child = child, .signal = SIGKILL});
}

std::vector<Action> Supervisor::stop_all(int signal, TimePoint now) {
  std::vector<Action> actions;
  stopping_ = true;
  for (int child = 0; child < static_cast<int>(children_.size()); ++child) ask(child, signal, now, actions);
  return actions;
}

std::vector<Action> Supervisor::leader_exited(int child, ExitStatus status, TimePoint now) {
  Child& one = children_[static_cast<size_t>(child)];
  if (one.state != State::kRunning) return {};
  one.status = status;
  one.state = State::kLeaderless;
  std::vector<Action> actions;
  if (!status.ok() && !stopping_) {
    first_failure_ = child;
    actions = stop_all(SIGTERM, now);
  }
  // What a shell leaves behind when it ends is nobody's; it must not outlive it.
  ask(child, SIGTERM, now, actions);
  return actions;
}

std::vector<Action> Supervisor::group_gone(int child) {
  Child& one = children_[static_cast<size_t>(child)];
  if (one.state == State::kLeaderless) one.state = State::kGone;
  return {};
}

std::vector<Action> Supervisor::start_failed(int child, TimePoint now) {
  Child& one = children_[static_cast<size_t>(child)];
  one.status = ExitStatus{.code = 127};
  one.state = State::kGone;
  if (stopping_) return {};
  first_failure_ = child;
  return stop_all(SIGTERM, now);
}

std::vector<Action> Supervisor::signalled(int signal, TimePoint now) {
  if (signal_ == 0) {
    signal_ = signal;
    if (!stopping_) return stop_all(signal, now);
    return {};
  }
  std::vector<Action> actions;
  for (int child = 0; child < static_cast<int>(children_.size()); ++child) kill(child, now, actions);
  return actions;
}

std::vector<Action> Supervisor::tick(TimePoint now) {
  std::vector<Action> actions;
  for (int child = 0; child < static_cast<int>(children_.size()); ++child) {
    Child& one = children_[static_cast<size_t>(child)];
    if (one.state == State::kGone || one.asked == Asked::kNo || now < one.deadline) continue;
    if (one.asked == Asked::kNicely) {
      kill(child, now, actions);
    } else {
      one.stuck = true;
      one.state = State::kGone;
    }
  }
  return actions;
}

bool Supervisor::finished() const {
  return std::all_of(children_.begin(), children_.end(), [](const Child& one) { return one.state == State::kGone; });
}

std::optional<TimePoint> Supervisor::next_tick() const {
  std::optional<TimePoint> next;
  for (const Child& one : children_) {
    if (one.state == State::kGone || one.asked == Asked::kNo) continue;
    next = next ? std::min(*next, one.deadline) : one.deadline;
  }
  return next;
}

// A shell is ended by the signal it was sent; a server that obeys it ends with 0; a shell that waited for one says
// 128 + signal.
bool Supervisor::ended_in_order(const Child& child) const {
  if (child.stuck || child.asked == Asked::kKilled || !child.status) return false;
  return child.status->ok() || (child.signal != 0 && child.status->as_shell() == 128 + child.signal);
}

int Supervisor::exit_code() const {
  if (first_failure_) return children_[static_cast<size_t>(*first_failure_)].status->as_shell();
  for (const Child& one : children_) {
    if (ended_in_order(one)) continue;
    return one.status && !one.status->ok() ? one.status->as_shell() : 128 + SIGKILL;
  }
  return 0;
}

std::string Supervisor::outcome(int child) const {
  const Child& one = children_[static_cast<size_t>(child)];
  std::string text = one.status ? one.status->text() : "never ended";
  if (first_failure_ == child) text += ", failed first";
  if (one.asked == Asked::kKilled) {
    text += fmt::format(", killed {} s after {}", std::chrono::duration_cast<std::chrono::seconds>(grace_).count(),
                        signal_name(one.signal));
    if (signal_ != 0) text = fmt::format("{}, killed", one.status ? one.status->text() : "never ended");
  } else if (stopping_ && one.asked == Asked::kNicely && first_failure_ != child) {
    text += fmt::format(", after {}", signal_name(one.signal));
  }
  if (one.stuck) text += ", some of it would not end";
  return text;
}

}  // namespace baton::launcher
