// Where the ranks of this process run: which cores, how many threads each, whether waits may spin.
#pragma once

#include <string>
#include <vector>

#include "apps/args/resolve_model.h"
#include "apps/serve/topology_setup.h"
#include "base/status.h"
#include "parallel/devices.h"

namespace baton::apps {

struct RankThreads {
  int per_rank = 1;
  int spin_us = 0;
  int loaders = 1;  // ranks that load their weights at a time
  // Cores of each rank of this process; empty: anywhere.
  std::vector<parallel::CoreSet> cores;
  std::string warning;  // empty: none
};

// `threads`: of all ranks of this process together, as --threads gives it; 0: the cores of their devices.
Result<RankThreads> plan_rank_threads(const TopologySetup& topology, int threads, const ReadEnvironment& environment);

}  // namespace baton::apps
