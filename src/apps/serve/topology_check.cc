// What can be said of a grid once the model's numbers are known, and what follows from it for caches and ports.
#include <numeric>

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

Result<std::vector<int>> layers_of_stages(const TopologySetup& topology, int layers) {
  if (!topology.layer_partition.empty()) {
    const int sum = std::accumulate(topology.layer_partition.begin(), topology.layer_partition.end(), 0);
    if (sum != layers) {
      return fail(Code::kInvalidArgument,
                  "sum(partitions)={} does not match num_hidden_layers={}. (VLLM_PP_LAYER_PARTITION)", sum, layers);
    }
    return topology.layer_partition;
  }
  if (topology.pp > layers) {
    return fail(Code::kInvalidArgument, "--pipeline-parallel-size {}: the model has {} layers, and a stage needs one",
                topology.pp, layers);
  }
  std::vector<int> counts(static_cast<size_t>(topology.pp), layers / topology.pp);
  // The last stage has the head besides, so the others take the remainder first.
  for (int extra = 0; extra < layers % topology.pp; ++extra) ++counts[static_cast<size_t>(topology.pp - 2 - extra)];
  return counts;
}

Result<void> check_topology(const TopologySetup& topology, const ModelNumbers& model) {
  BATON_TRY(layers_of_stages(topology, model.layers));
  if (model.heads % topology.tp != 0) {
    return fail(Code::kInvalidArgument,
                "Total number of attention heads ({}) must be divisible by tensor parallel size ({}).", model.heads,
                topology.tp);
  }
  for (const int heads : {model.heads, model.kda_heads}) {
    if (heads % topology.ranks_per_stage() == 0) continue;
    return fail(Code::kInvalidArgument,
                "{} heads must be divisible by the {} ranks of a stage (prefill context {} * tensor parallel {}): each "
                "rank owns whole heads",
                heads, topology.ranks_per_stage(), topology.pcp, topology.tp);
  }
  return {};
}

Result<engine::KvTransferConfig> kv_transfer_of_replica(const engine::KvTransferConfig& config,
                                                        const TopologySetup& topology, int dp_rank) {
  engine::KvTransferConfig made = config;
  if (config.role == engine::KvRole::kNone || topology.dp_size == 1) return made;
  made.engine_id = fmt::format("{}_dp{}", config.engine_id, dp_rank);
  if (config.port == 0) return made;
  const int64_t port = int64_t{config.port} + int64_t{dp_rank} * topology.ranks_per_replica();
  if (port > 65535) {
    return fail(
        Code::kInvalidArgument,
        "--kv-transfer-config kv_port {}: data-parallel rank {} of {} ranks each would use port {}; take a lower "
        "kv_port",
        config.port, dp_rank, topology.ranks_per_replica(), port);
  }
  made.port = static_cast<int>(port);
  return made;
}

}  // namespace baton::apps
