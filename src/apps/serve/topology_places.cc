// Which part of a deployment this process is: the node of a replica, the replicas of a host.
#include "apps/serve/topology_parts.h"

namespace baton::apps {

Result<void> set_nodes(const ParsedArgs& parsed, TopologySetup& topology) {
  BATON_TRY_ASSIGN(topology.nnodes, size_of(parsed, "nnodes", 1, 1, kMostRanksPerReplica));
  BATON_TRY_ASSIGN(topology.node_rank, size_of(parsed, "node-rank", 0, 0, kMostRanksPerReplica));
  if (parsed.has("master-addr")) topology.master_addr = parsed.value("master-addr");
  BATON_TRY_ASSIGN(topology.master_port, size_of(parsed, "master-port", topology.master_port, 1024, 65535));
  topology.headless = is_set(parsed, "headless");
  if (topology.node_rank >= topology.nnodes) {
    return fail(Code::kInvalidArgument, "node_rank={} must be less than nnodes={}.", topology.node_rank,
                topology.nnodes);
  }
  if (topology.ranks_per_replica() % topology.nnodes != 0) {
    return fail(Code::kInvalidArgument, "world_size={} must be divisible by nnodes={}.", topology.ranks_per_replica(),
                topology.nnodes);
  }
  if (topology.pp % topology.nnodes != 0) {
    return fail(Code::kUnimplemented,
                "--nnodes {} would spread one pipeline stage over hosts (--pipeline-parallel-size {}): the ranks of a "
                "stage share memory, so nnodes must divide the pipeline size",
                topology.nnodes, topology.pp);
  }
  if (topology.headless && topology.nnodes == 1) {
    return fail(Code::kInvalidArgument,
                "--headless needs --nnodes greater than 1: a process without an API server follows that of node 0");
  }
  if (topology.headless != (topology.node_rank > 0)) {
    return fail(Code::kInvalidArgument, "{}",
                topology.headless
                    ? "--headless is for --node-rank 1 and above: node 0 has the API server"
                    : fmt::format("--node-rank {} needs --headless: node 0 has the API server", topology.node_rank));
  }
  return {};
}

namespace {

// vLLM's rules, by its EngineArgs: a rank means external; a local size with a start rank means hybrid; a local size of
// one means external after all; a local size equal to the whole is internal.
Result<void> set_replica_place(const ParsedArgs& parsed, TopologySetup& topology) {
  const bool has_rank = parsed.has("data-parallel-rank"), has_local = parsed.has("data-parallel-size-local");
  const bool hybrid = is_set(parsed, "data-parallel-hybrid-lb"), external = is_set(parsed, "data-parallel-external-lb");
  BATON_TRY_ASSIGN(const int rank, size_of(parsed, "data-parallel-rank", 0, 0, kMostReplicas));
  BATON_TRY_ASSIGN(const int start, size_of(parsed, "data-parallel-start-rank", 0, 0, kMostReplicas));
  BATON_TRY_ASSIGN(const int local, size_of(parsed, "data-parallel-size-local", topology.dp_size, 0, kMostReplicas));
  if (local > topology.dp_size) {
    return fail(Code::kInvalidArgument, "data_parallel_size_local ({}) must be <= data_parallel_size ({})", local,
                topology.dp_size);
  }
  topology.dp_size_local = local;
  topology.dp_rank = start;
  if (hybrid && external) {
    return fail(Code::kInvalidArgument, "data_parallel_hybrid_lb and data_parallel_external_lb cannot both be True.");
  }
  if (external && !has_rank) {
    return fail(Code::kInvalidArgument,
                "data_parallel_rank or node_rank must be specified if data_parallel_external_lb is enable.");
  }
  if (has_rank) {
    if (has_local && local != 1) {
      return fail(Code::kInvalidArgument, "data_parallel_size_local must be 1 or None when data_parallel_rank is set");
    }
    topology.dp_rank = rank;
    topology.dp_size_local = 1;
    topology.load_balance = LoadBalance::kExternal;
    return {};
  }
  if (hybrid && !has_local) {
    return fail(Code::kInvalidArgument, "data_parallel_size_local must be set to use data_parallel_hybrid_lb.");
  }
  if (local == 0) {
    return fail(Code::kUnimplemented,
                "--data-parallel-size-local 0: an API server without an engine is not in this version of Baton; use "
                "`baton proxy` in front of the replicas");
  }
  if (local == topology.dp_size) return {};
  topology.load_balance = local == 1 ? LoadBalance::kExternal : LoadBalance::kHybrid;
  if (!hybrid && start == 0) {
    return fail(Code::kUnimplemented,
                "--data-parallel-size-local {} of --data-parallel-size {}: one API server over the replicas of several "
                "hosts is not in this version of Baton; give every host its own with --data-parallel-hybrid-lb, or "
                "every replica with --data-parallel-rank",
                local, topology.dp_size);
  }
  return {};
}

}  // namespace

Result<void> set_replicas(const ParsedArgs& parsed, TopologySetup& topology) {
  BATON_TRY_ASSIGN(topology.dp_size, size_of(parsed, "data-parallel-size", 1, 1, kMostReplicas));
  if (parsed.has("data-parallel-address")) topology.dp_address = parsed.value("data-parallel-address");
  BATON_TRY_ASSIGN(topology.dp_rpc_port, size_of(parsed, "data-parallel-rpc-port", topology.dp_rpc_port, 1024, 65535));
  BATON_TRY(set_replica_place(parsed, topology));
  if (topology.dp_rank >= topology.dp_size) {
    return fail(Code::kInvalidArgument, "data_parallel_rank ({}) must be in the range [0, {})", topology.dp_rank,
                topology.dp_size);
  }
  if (topology.dp_rank + topology.dp_size_local > topology.dp_size) {
    return fail(Code::kInvalidArgument,
                "--data-parallel-start-rank {} and {} local replicas end after --data-parallel-size {}",
                topology.dp_rank, topology.dp_size_local, topology.dp_size);
  }
  if (topology.dp_size > 1 && topology.nnodes > 1) {
    return fail(
        Code::kUnimplemented,
        "--data-parallel-size {} with --nnodes {}: a replica over several hosts stands alone in this version of "
        "Baton; start each as its own deployment behind the proxy",
        topology.dp_size, topology.nnodes);
  }
  return {};
}

}  // namespace baton::apps
