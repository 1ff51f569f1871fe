// Nothing that a launch started may outlive it: every process under it carries the launch's mark in its environment.
//
// The sweep at the end finds those that left their process group. The guard is a process that does nothing but wait for
// the launcher's end: should the launcher be killed, the guard stops what it left. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace baton::launcher {

std::string make_mark();                             // unlike that of any other launch
std::string mark_variable(const std::string& mark);  // "BATON_LAUNCH_ID=<mark>", for a child's environment

// Processes of this user with the mark, but for this one.
std::vector<pid_t> marked_processes(const std::string& mark);
// SIGTERM, then SIGKILL after the grace. How many it found.
int sweep(const std::string& mark, Duration grace);

class Guard {
 public:
  // Forks; call while the process has one thread. `grace`: between SIGTERM and SIGKILL.
  static Result<Guard> start(const std::string& mark, Duration grace);
  Guard(Guard&& other) noexcept;
  Guard& operator=(Guard&&) = delete;
  // Tells the guard that all is well, and waits for its end.
  ~Guard();
  pid_t pid() const { return pid_; }

 private:
  Guard(pid_t pid, int alive) : pid_(pid), alive_(alive) {}
  pid_t pid_;
  int alive_;  // written once at the end; closed by the kernel should we be killed
};

}  // namespace baton::launcher
