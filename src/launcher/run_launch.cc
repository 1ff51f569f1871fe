#include "launcher/run_launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "launcher/guard.h"
#include "launcher/output.h"
#include "launcher/process.h"
#include "launcher/supervisor.h"

namespace baton::launcher {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(50);  // at groups whose shell has ended
constexpr Duration kSweepGrace = std::chrono::seconds(2);  // for what left its group
constexpr Duration kGuardGrace = std::chrono::seconds(10);

// Under nohup a hang-up, in a script's background an interrupt, is not meant for us; blocked, it would still be queued.
bool is_ignored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

struct Running {
  const PlannedChild* planned;
  ChildOutput output;
  pid_t pid = 0;  // and its group's id; 0: never started
  int pipe = -1;
  TimePoint started, ended;
};

class Launch {
 public:
  Launch(const LaunchPlan& plan)
      : plan_(plan),
        supervisor_(static_cast<int>(plan.children.size()), plan.options.stop_timeout),
        mark_(make_mark()),
        console_(STDOUT_FILENO) {}

  Result<int> run() {
    BATON_TRY(prepare());
    BATON_TRY_ASSIGN(const Guard guard, Guard::start(mark_, kGuardGrace));
    for (int i = 0; i < static_cast<int>(children_.size()); ++i) {
      // Those that a failed start keeps from starting are gone as well.
      if (supervisor_.stopping() || !start(children_[static_cast<size_t>(i)])) {
        apply(supervisor_.start_failed(i, clock_.now()));
      }
    }
    while (!supervisor_.finished()) step();
    finish_output();
    if (const int found = sweep(mark_, kSweepGrace); found > 0) {
      log_warning("stopped {} processes that had left their rank's process group", found);
    }
    report();
    return supervisor_.exit_code();
  }

  ~Launch() {
    for (const Running& child : children_) {
      if (child.pipe >= 0) close(child.pipe);
    }
    if (signals_ >= 0) close(signals_);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

 private:
  Result<void> prepare() {
    std::error_code error;
    std::filesystem::create_directories(plan_.options.log_dir, error);
    if (error) return fail(Code::kUnavailable, "--log-dir {}: {}", plan_.options.log_dir, error.message());
    for (const auto& planned : plan_.children) {
      BATON_TRY_ASSIGN(auto output, ChildOutput::open(planned.log_file, fmt::format("[{}] ", planned.name),
                                                      command_text(plan_, planned)));
      children_.push_back({.planned = &planned, .output = std::move(output), .started = {}, .ended = {}});
    }
    sigset_t watched;
    sigemptyset(&watched);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      if (!is_ignored(signal)) sigaddset(&watched, signal);
    }
    std::signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &watched, nullptr);
    signals_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) return fail(Code::kUnavailable, "signalfd: {}", std::strerror(errno));
    adopt_orphans();
    return {};
  }

  bool start(Running& child) {
    int ends[2];
    child.started = clock_.now();
    if (pipe2(ends, O_CLOEXEC) != 0) {
      log_error("{}: pipe: {}", child.planned->name, std::strerror(errno));
      return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    SpawnOptions options{
        .arguments = {"bash", plan_.options.template_path}, .environment = {mark_variable(mark_)}, .output = ends[1]};
    const auto& arguments = child.planned->arguments;
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    const auto pid = spawn_in_group(options);
    close(ends[1]);
    child.pipe = ends[0];
    if (!pid) {
      log_error("{}: {}", child.planned->name, pid.error().message());
      return false;
    }
    child.pid = *pid;
    log_info("rank={} port={} pid={} log={}", child.planned->dp_rank, child.planned->port, child.pid,
             child.planned->log_file);
    return true;
  }

  void apply(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      const Running& child = children_[static_cast<size_t>(action.child)];
      if (child.pid != 0) signal_group(child.pid, action.signal);
    }
  }

  // Waits for something to happen, and handles it.
  void step() {
    std::vector<pollfd> watched{{.fd = signals_, .events = POLLIN, .revents = 0}};
    for (const Running& child : children_) watched.push_back({.fd = child.pipe, .events = POLLIN, .revents = 0});
    if (console_.pending()) watched.push_back({.fd = console_.descriptor(), .events = POLLOUT, .revents = 0});
    poll(watched.data(), watched.size(), wait_ms());
    for (size_t i = 0; i < children_.size(); ++i) {
      if (watched[i + 1].revents != 0) read_output(children_[i]);
    }
    console_.flush();
    read_signals();
    see_ends();
    apply(supervisor_.tick(clock_.now()));
  }

  int wait_ms() const {
    Duration wait = std::chrono::seconds(1);
    for (int i = 0; i < static_cast<int>(children_.size()); ++i) {
      if (supervisor_.state(i) == Supervisor::State::kLeaderless) wait = kLook;
    }
    if (const auto next = supervisor_.next_tick()) wait = std::min(wait, *next - clock_.now());
    return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
  }

  // At most a few pieces at a time, so that one loud child does not keep signals waiting.
  void read_output(Running& child) {
    std::array<char, 65536> buffer;
    for (int piece = 0; piece < 4 && child.pipe >= 0; ++piece) {
      const ssize_t count = read(child.pipe, buffer.data(), buffer.size());
      if (count > 0) {
        child.output.take({buffer.data(), static_cast<size_t>(count)}, console_);
        continue;
      }
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
      close(child.pipe);
      child.pipe = -1;
    }
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      log_info("signal={} action={}", signal,
               supervisor_.stopping() ? "kill, if it came before" : "passed on to every rank");
      apply(supervisor_.signalled(signal, clock_.now()));
    }
  }

  void see_ends() {
    for (const auto& [pid, status] : reap()) {
      const auto it = std::find_if(children_.begin(), children_.end(), [&](const Running& c) { return c.pid == pid; });
      if (it == children_.end()) continue;  // an adopted orphan
      const int index = static_cast<int>(it - children_.begin());
      it->ended = clock_.now();
      const bool was_stopping = supervisor_.stopping();
      apply(supervisor_.leader_exited(index, status, clock_.now()));
      if (supervisor_.stopping() && !was_stopping) {
        log_error("rank={} failed first ({}): stopping the other ranks of this host", it->planned->dp_rank,
                  status.text());
      }
    }
    for (int i = 0; i < static_cast<int>(children_.size()); ++i) {
      const Running& child = children_[static_cast<size_t>(i)];
      if (supervisor_.state(i) == Supervisor::State::kLeaderless && !group_alive(child.pid)) supervisor_.group_gone(i);
    }
  }

  // What is still in the pipes; a process that left its group may hold one open, so nobody waits for their end.
  void finish_output() {
    for (Running& child : children_) {
      read_output(child);
      child.output.finish(console_);
    }
    console_.finish(1000);
  }

  void report() {
    console_.add(fmt::format("[launch] {:<8}{:<7}{:<9}{:<10}{}\n", "rank", "port", "pid", "ran, s", "outcome"));
    for (size_t i = 0; i < children_.size(); ++i) {
      const Running& child = children_[i];
      const double ran = child.pid == 0 ? 0 : std::max(0.0, seconds_between(child.started, child.ended));
      const std::string outcome = child.pid == 0 ? "not started" : supervisor_.outcome(static_cast<int>(i));
      console_.add(fmt::format("[launch] {:<8}{:<7}{:<9}{:<10.1f}{} ({})\n", child.planned->name, child.planned->port,
                               child.pid, ran, outcome, child.planned->log_file));
    }
    if (const auto failed = supervisor_.first_failure()) {
      const Running& child = children_[static_cast<size_t>(*failed)];
      console_.add(fmt::format("[launch] the last lines of {}:\n", child.planned->name));
      for (const auto& line : child.output.last_lines()) console_.add(fmt::format("[launch]   {}\n", line));
    }
    console_.finish(1000);
  }

  const LaunchPlan& plan_;
  SteadyClock clock_;
  Supervisor supervisor_;
  std::string mark_;
  Console console_;
  std::vector<Running> children_;
  int signals_ = -1;
};

}  // namespace

Result<int> run_launch(const LaunchPlan& plan) { return Launch(plan).run(); }

}  // namespace baton::launcher
