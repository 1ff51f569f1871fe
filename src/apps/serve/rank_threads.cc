#include "apps/serve/rank_threads.h"

#include <algorithm>

#include "tensor/cpu.h"

namespace baton::apps {
namespace {

constexpr int kSpinUs = 50;

// One rank that was given no device: all cores, wherever the system puts its threads.
RankThreads one_rank(int threads) {
  const int cores = tensor::usable_cores();
  RankThreads made{.per_rank = threads > 0 ? threads : cores, .cores = {}, .warning = {}};
  if (made.per_rank <= cores) {
    made.spin_us = kSpinUs;
  } else {
    made.warning = fmt::format("threads={} cores={} effect=\"more threads than cores: slower\"", made.per_rank, cores);
  }
  return made;
}

// Ranks that may be on this host: what other processes of the grid hold is not known to lie elsewhere.
int ranks_of_grid(const TopologySetup& topology) { return topology.dp_size * topology.ranks_per_replica(); }

}  // namespace

Result<RankThreads> plan_rank_threads(const TopologySetup& topology, int threads, const ReadEnvironment& environment) {
  const int ranks = topology.ranks_here();
  if (ranks == 1 && topology.visible_devices.empty()) return one_rank(threads);
  BATON_TRY_ASSIGN(const auto devices, parallel::visible_devices(environment));
  RankThreads made{.cores = {}, .warning = devices.warning(ranks)};
  for (int rank = 0; rank < ranks; ++rank) made.cores.push_back(devices.of_rank(rank));
  const int visible = std::min<int>(devices.machine_devices, static_cast<int>(devices.ids.size()));
  const bool cores_of_their_own = ranks <= visible;
  if (threads > 0) {
    made.per_rank = std::max(1, threads / ranks);
  } else if (cores_of_their_own) {
    made.per_rank = static_cast<int>(std::ranges::min(made.cores, {}, &parallel::CoreSet::size).size());
  }
  made.spin_us = ranks_of_grid(topology) <= devices.machine_devices ? kSpinUs : 0;
  made.loaders = std::clamp(devices.machine_devices, 1, ranks);
  return made;
}

}  // namespace baton::apps
