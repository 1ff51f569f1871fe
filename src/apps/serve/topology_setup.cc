#include "apps/serve/topology_setup.h"

#include <algorithm>
#include <charconv>

#include "apps/args/arg_values.h"
#include "apps/serve/own_address.h"

namespace baton::apps {
namespace {

constexpr int kMostReplicas = 1024;
constexpr int kMostRanksPerReplica = 1024;
constexpr int kMostDevice = 65535;

Result<int> size_of(const ParsedArgs& parsed, const char* name, int fallback, int lowest, int highest) {
  if (!parsed.has(name)) return fallback;
  const auto value = parse_plain_int(parsed.value(name));
  if (!value) return fail(invalid_value(name, "int", parsed.value(name)));
  if (*value < lowest || *value > highest) {
    return fail(Code::kInvalidArgument, "argument --{}: {} is not from {} to {}", name, *value, lowest, highest);
  }
  return static_cast<int>(*value);
}

bool is_set(const ParsedArgs& parsed, const char* name) { return parsed.value(name) == "true"; }

// "25,25,24,19"
Result<std::vector<int>> partition_of(const std::string& text) {
  std::vector<int> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int count = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, count);
    if (error != std::errc() || stop != text.data() + end || count < 1 || counts.size() == 1024) {
      return fail(Code::kInvalidArgument,
                  "Invalid partition string: {} (VLLM_PP_LAYER_PARTITION: layers of each stage, "
                  "like 25,25,24,19)",
                  text);
    }
    counts.push_back(count);
    begin = end + 1;
  }
  return counts;
}

// "0,1,2" and "0-3", alone or mixed.
Result<std::vector<int>> devices_of(const std::string& variable, const std::string& text) {
  std::vector<int> devices;
  const auto refuse = [&] {
    return fail(Code::kInvalidArgument, "{}: '{}' is not a list of device numbers like 0,1,2 or 0-3", variable, text);
  };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const char* const last = text.data() + end;
    int low = 0;
    auto parsed = std::from_chars(text.data() + begin, last, low);
    if (parsed.ec != std::errc()) return refuse();
    int high = low;
    if (parsed.ptr != last && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, last, high);
      if (parsed.ec != std::errc()) return refuse();
    }
    if (parsed.ptr != last || low < 0 || high < low || high > kMostDevice) return refuse();
    for (int device = low; device <= high; ++device) {
      if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
        return fail(Code::kInvalidArgument, "{}: device {} stands twice in '{}'", variable, device, text);
      }
      devices.push_back(device);
    }
    begin = end + 1;
  }
  return devices;
}

Result<void> set_devices(const ReadEnvironment& environment, TopologySetup& topology) {
  for (const char* variable : {"BATON_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"}) {
    const std::string text = environment(variable);
    if (text.empty()) continue;
    BATON_TRY_ASSIGN(topology.visible_devices, devices_of(variable, text));
    break;
  }
  const int devices = static_cast<int>(topology.visible_devices.size());
  if (devices > 0 && devices < topology.ranks_here()) {
    topology.warnings.push_back(fmt::format("{} ranks run here on {} visible devices: they share cores and are slower",
                                            topology.ranks_here(), devices));
  }
  return {};
}

Result<void> set_grid(const ParsedArgs& parsed, TopologySetup& topology) {
  BATON_TRY_ASSIGN(topology.tp, size_of(parsed, "tensor-parallel-size", 1, 1, kMostRanksPerReplica));
  BATON_TRY_ASSIGN(topology.pp, size_of(parsed, "pipeline-parallel-size", 1, 1, kMostRanksPerReplica));
  BATON_TRY_ASSIGN(topology.pcp, size_of(parsed, "prefill-context-parallel-size", 1, 1, kMostRanksPerReplica));
  BATON_TRY_ASSIGN(topology.dcp, size_of(parsed, "decode-context-parallel-size", 1, 1, kMostRanksPerReplica));
  topology.expert_parallel = is_set(parsed, "enable-expert-parallel");
  if (topology.tp % topology.dcp != 0) {
    return fail(Code::kInvalidArgument, "tp_size={} must be divisible by dcp_size={}.", topology.tp, topology.dcp);
  }
  const int64_t ranks = int64_t{topology.pp} * topology.pcp * topology.tp;
  if (ranks > kMostRanksPerReplica) {
    return fail(Code::kInvalidArgument,
                "pipeline {} * prefill context {} * tensor parallel size {} are {} ranks; a replica has at most {}",
                topology.pp, topology.pcp, topology.tp, ranks, kMostRanksPerReplica);
  }
  return {};
}

// 16 lanes of 768 positions are 12288: what one round over the context ranks must divide, so that each rank's tiles
// stand in whole lanes.
Result<void> set_interleave(const ParsedArgs& parsed, TopologySetup& topology) {
  constexpr int kSpan = 768, kRound = 12288;
  const int ranks = topology.context_ranks();
  BATON_TRY_ASSIGN(const int given, size_of(parsed, "cp-kv-cache-interleave-size", 0, 1, 1 << 24));
  if (ranks == 1) {
    if (given > 1) {
      topology.notes.push_back(fmt::format(
          "--cp-kv-cache-interleave-size {}: one context rank holds all positions, so nothing is interleaved", given));
    }
    return {};
  }
  topology.interleave = given;
  if (given == 0) {
    BATON_TRY_ASSIGN(const int block, size_of(parsed, "block-size", 0, 1, 65536));
    const bool follows = block > kSpan && block % kSpan == 0;
    topology.interleave = follows ? block : kSpan;
  }
  if (topology.interleave % kSpan != 0) {
    return fail(
        Code::kInvalidArgument,
        "--cp-kv-cache-interleave-size {}: with {} context ranks (prefill {} * decode {}) it must be a multiple "
        "of 768, the span whose attention is summed in one lane",
        topology.interleave, ranks, topology.pcp, topology.dcp);
  }
  if (int64_t{topology.interleave} * ranks > kRound || kRound % (topology.interleave * ranks) != 0) {
    return fail(
        Code::kInvalidArgument,
        "--cp-kv-cache-interleave-size {} * {} context ranks (prefill {} * decode {}) must divide 12288, the 16 "
        "lanes of attention: take {}",
        topology.interleave, ranks, topology.pcp, topology.dcp,
        16 % ranks == 0 ? "a smaller interleave" : "1, 2, 4, 8 or 16 context ranks");
  }
  return {};
}

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

// A wrong interface name is an error only where another host must find this one.
Result<void> set_own_address(const ReadEnvironment& environment, TopologySetup& topology) {
  for (const char* variable : {"VLLM_HOST_IP", "HCCL_IF_IP"}) {
    const std::string address = environment(variable);
    if (address.empty()) continue;
    if (!is_numeric_address(address)) {
      return fail(Code::kInvalidArgument, "{}: '{}' is not a numeric address", variable, address);
    }
    topology.own_address = address;
    return {};
  }
  const bool needed = topology.nnodes > 1 || topology.dp_size > topology.dp_size_local;
  for (const char* variable : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"}) {
    const std::string names = environment(variable);
    if (names.empty()) continue;
    auto address = address_of_interface(names);
    if (!address && needed) return fail(address.error().with_context(variable));
    if (!address) {
      topology.warnings.push_back(fmt::format("{}: {}", variable, address.error().message()));
      continue;
    }
    topology.own_address = *address;
    return {};
  }
  if (!needed) return {};
  const std::string& meeting = topology.nnodes > 1 ? topology.master_addr : topology.dp_address;
  auto address = address_towards(meeting);
  if (!address) {
    return fail(address.error().with_context(topology.nnodes > 1 ? "--master-addr" : "--data-parallel-address"));
  }
  topology.own_address = *address;
  return {};
}

Result<double> step_timeout_of(const ReadEnvironment& environment) {
  constexpr const char* kVariable = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS";
  const std::string text = environment(kVariable);
  if (text.empty()) return 300.0;
  const auto seconds = parse_plain_float(text);
  if (!seconds || *seconds < 1 || *seconds > 1e6) {
    return fail(Code::kInvalidArgument, "{}: '{}' is not from 1 to 1000000 seconds", kVariable, text);
  }
  return *seconds;
}

}  // namespace

std::string_view load_balance_name(LoadBalance mode) {
  switch (mode) {
    case LoadBalance::kInternal:
      return "internal";
    case LoadBalance::kExternal:
      return "external";
    case LoadBalance::kHybrid:
      return "hybrid";
  }
  return "";
}

Result<TopologySetup> make_topology_setup(const ParsedArgs& parsed, const ReadEnvironment& environment) {
  TopologySetup topology;
  BATON_TRY(set_grid(parsed, topology));
  BATON_TRY(set_interleave(parsed, topology));
  BATON_TRY(set_nodes(parsed, topology));
  BATON_TRY(set_replicas(parsed, topology));
  BATON_TRY(set_devices(environment, topology));
  BATON_TRY(set_own_address(environment, topology));
  BATON_TRY_ASSIGN(topology.step_timeout_s, step_timeout_of(environment));
  const std::string partition = environment("VLLM_PP_LAYER_PARTITION");
  if (partition.empty()) return topology;
  if (topology.pp == 1) {
    topology.notes.push_back("VLLM_PP_LAYER_PARTITION: one stage has all layers, so it does nothing");
    return topology;
  }
  BATON_TRY_ASSIGN(topology.layer_partition, partition_of(partition));
  if (static_cast<int>(topology.layer_partition.size()) != topology.pp) {
    return fail(Code::kInvalidArgument, "len(partitions)={} does not match pp_size={}. (VLLM_PP_LAYER_PARTITION={})",
                topology.layer_partition.size(), topology.pp, partition);
  }
  return topology;
}

}  // namespace baton::apps
