// Which cores a rank runs on. A "device" is a physical core (or BATON_CORES_PER_DEVICE of them) with its hardware
// threads, numbered in the machine's order of sockets, caches and cores. Only cores that this process may use count:
// affinity mask and cgroup cpuset.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::parallel {

// Numbers of hardware threads as the system has them, ascending.
using CoreSet = std::vector<int>;

struct Devices {
  // One entry for each visible device, in the order asked for: its number, and its cores. Numbers past what the
  // machine has begin again at its first device, so that any deployment starts on any machine.
  std::vector<int> ids;
  std::vector<CoreSet> cores;
  int machine_devices = 0;  // how many this process may use without sharing

  // Of a process's i-th rank: past the visible ones it begins again.
  const CoreSet& of_rank(int rank) const { return cores[static_cast<size_t>(rank) % cores.size()]; }
  // What to tell the user when `ranks` threads share cores; empty when each has its own.
  std::string warning(int ranks) const;
};

using ReadVariable = std::function<std::string(const char* name)>;  // "" when unset

// From BATON_VISIBLE_DEVICES or else ASCEND_RT_VISIBLE_DEVICES ("0,1,2", "0-3", "4-7,0"; unset or empty: all), and
// BATON_CORES_PER_DEVICE (1). kInvalidArgument names the variable and the word in it that is wrong.
Result<Devices> visible_devices(const ReadVariable& variable);

// The calling thread runs only there from now on, and so do threads that it starts.
Result<void> pin_this_thread(const CoreSet& cores);

}  // namespace baton::parallel
