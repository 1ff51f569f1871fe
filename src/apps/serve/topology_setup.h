// The grid of ranks that a command line asks for: sizes, this process's place in it, where its processes meet.
//
// Pure but for the look at network interfaces (own_address.h). Everything that can be known without the checkpoint is
// checked here, in vLLM's words where vLLM has the check.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/args/arg_grammar.h"
#include "apps/args/resolve_model.h"
#include "base/status.h"
#include "engine/engine.h"
#include "parallel/grid.h"

namespace baton::apps {

// Who chooses the data-parallel replica of a request.
enum class LoadBalance : uint8_t {
  kInternal,  // one API server over all replicas, which live in this process
  kExternal,  // one process, one replica, one API server each; somebody in front chooses
  kHybrid,    // one API server a node over the replicas of that node
};
std::string_view load_balance_name(LoadBalance mode);

struct TopologySetup {
  // The grid of one replica. A stage's team has pcp * tp ranks; dcp lies over tp.
  int pp = 1, tp = 1, pcp = 1, dcp = 1;
  bool expert_parallel = false;
  // Tokens in a row on one context rank: a multiple of 768 that, times the context ranks, divides 12288. It is also
  // each rank's block size. 0 with one context rank, where the block size is free.
  int interleave = 0;
  std::vector<int> layer_partition;  // VLLM_PP_LAYER_PARTITION, as parallel::stage_layers takes it

  // Replicas. This process holds ranks [dp_rank, dp_rank + dp_size_local).
  LoadBalance load_balance = LoadBalance::kInternal;
  int dp_size = 1, dp_rank = 0, dp_size_local = 1;
  std::string dp_address = "127.0.0.1";  // of the process with rank 0
  int dp_rpc_port = 29550;

  // Hosts of one replica: node_rank holds stages [first_stage(), first_stage() + stages_here()).
  int nnodes = 1, node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 29501;
  bool headless = false;  // no API server here; the node of rank 0 has it

  // Device numbers of BATON_VISIBLE_DEVICES or ASCEND_RT_VISIBLE_DEVICES, as given; empty: none was given.
  std::vector<int> visible_devices;
  // Where other processes reach this one: VLLM_HOST_IP, HCCL_IF_IP, the address of the interface that
  // GLOO_SOCKET_IFNAME names, or that of the route to the meeting point. A numeric address.
  std::string own_address = "127.0.0.1";
  // What processes that meet (nodes, replicas that share experts) must prove to each other: baton_secret of
  // --additional-config, else BATON_SECRET. Empty: nothing.
  std::string secret;
  double step_timeout_s = 300;  // VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS

  std::vector<std::string> notes, warnings;  // for the start-up log

  int context_ranks() const { return pcp * dcp; }
  int ranks_per_stage() const { return pcp * tp; }
  int ranks_per_replica() const { return pp * pcp * tp; }
  int stages_here() const { return pp / nnodes; }
  int first_stage() const { return node_rank * stages_here(); }
  int ranks_here() const { return dp_size_local * stages_here() * ranks_per_stage(); }
  bool one_rank() const { return ranks_per_replica() == 1 && dp_size == 1; }
  // Processes meet at dp_address: replicas of other processes exist, and they share something (experts).
  bool replicas_meet() const { return dp_size > dp_size_local && expert_parallel; }
};

// kInvalidArgument says which sizes don't fit and why; kUnimplemented for what no grid of ours can be.
Result<TopologySetup> make_topology_setup(const ParsedArgs& parsed, const ReadEnvironment& environment);

// Under context parallelism the block size is the interleave: `given` is raised to it, with a note, or refused.
Result<int> topology_block_size(TopologySetup& topology, std::optional<int> given, int fallback);

// As src/parallel knows it; what needs the model's numbers is checked there (check_grid, stage_layers).
parallel::GridSizes grid_sizes(const TopologySetup& topology);

// The configuration of one data-parallel rank. Of the hand-off it has its own engine id and its own span of ports
// (kv_port + the number of this process's first rank, replicas first), so that one template serves all ranks of a host;
// and it draws seeds of its own where requests bring none.
Result<engine::EngineConfig> config_of_replica(const engine::EngineConfig& config, const TopologySetup& topology,
                                               int dp_rank);

}  // namespace baton::apps
