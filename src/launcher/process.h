// Starting, signalling and reaping process groups: the only file that makes processes. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/supervisor.h"

namespace baton::launcher {

struct SpawnOptions {
  std::vector<std::string> arguments;    // the first is looked up on PATH
  std::vector<std::string> environment;  // "NAME=value", beside this process's own
  int output = -1;                       // becomes standard output and error; standard input is /dev/null
};
// Leads a new process group, with all signals as at start. The pid is the group's id.
Result<pid_t> spawn_in_group(const SpawnOptions& options);

// Orphans of our children come to us, so that a group can be seen to be empty.
void adopt_orphans();
// Everything that has ended since, ours and adopted.
std::vector<std::pair<pid_t, ExitStatus>> reap();
bool group_alive(pid_t group);
void signal_group(pid_t group, int signal);

}  // namespace baton::launcher
