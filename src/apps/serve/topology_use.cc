// What follows from a grid for caches and ports.
#include "apps/serve/topology_setup.h"

namespace baton::apps {

Result<int> topology_block_size(TopologySetup& topology, std::optional<int> given, int fallback) {
  if (topology.context_ranks() == 1) return given.value_or(fallback);
  if (!given || *given == topology.interleave) return topology.interleave;
  if (*given > topology.interleave) {
    return fail(Code::kInvalidArgument,
                "--block-size {} is larger than --cp-kv-cache-interleave-size {}: under context parallelism a block "
                "lies whole on one rank, so both must be equal",
                *given, topology.interleave);
  }
  topology.notes.push_back(
      fmt::format("--block-size {} is raised to {}, the interleave of {} context ranks: a block lies whole on one rank",
                  *given, topology.interleave, topology.context_ranks()));
  return topology.interleave;
}

parallel::GridSizes grid_sizes(const TopologySetup& topology) {
  parallel::GridSizes sizes{.dp = topology.dp_size,
                            .pp = topology.pp,
                            .pcp = topology.pcp,
                            .tp = topology.tp,
                            .dcp = topology.dcp,
                            .expert_parallel = topology.expert_parallel};
  if (topology.interleave > 0) sizes.interleave = topology.interleave;
  return sizes;
}

Result<engine::EngineConfig> config_of_replica(const engine::EngineConfig& config, const TopologySetup& topology,
                                               int dp_rank) {
  engine::EngineConfig made = config;
  if (config.seed != 0) made.seed = config.seed + static_cast<uint64_t>(dp_rank);
  auto& transfer = made.kv_transfer;
  if (transfer.role == engine::KvRole::kNone) return made;
  if (topology.dp_size > 1) transfer.engine_id = fmt::format("{}_dp{}", transfer.engine_id, dp_rank);
  if (transfer.port == 0) return made;
  const int first_rank = topology.first_stage() * topology.ranks_per_stage();
  const int64_t port = transfer.port + int64_t{dp_rank} * topology.ranks_per_replica() + first_rank;
  if (port > 65535) {
    return fail(
        Code::kInvalidArgument,
        "--kv-transfer-config kv_port {}: data-parallel rank {} of {} ranks each would use port {}; take a lower "
        "kv_port",
        transfer.port, dp_rank, topology.ranks_per_replica(), port);
  }
  transfer.port = static_cast<int>(port);
  return made;
}

}  // namespace baton::apps
