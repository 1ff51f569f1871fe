// What the environment says of a grid: devices, addresses, layers of each stage, the longest step.
#include <algorithm>
#include <charconv>

#include "apps/args/arg_values.h"
#include "apps/serve/own_address.h"
#include "apps/serve/topology_parts.h"

namespace baton::apps {
namespace {

constexpr int kMostDevice = 65535;

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

Result<void> set_partition(const ReadEnvironment& environment, TopologySetup& topology) {
  const std::string partition = environment("VLLM_PP_LAYER_PARTITION");
  if (partition.empty()) return {};
  if (topology.pp == 1) {
    topology.notes.push_back("VLLM_PP_LAYER_PARTITION: one stage has all layers, so it does nothing");
    return {};
  }
  BATON_TRY_ASSIGN(topology.layer_partition, partition_of(partition));
  if (static_cast<int>(topology.layer_partition.size()) != topology.pp) {
    return fail(Code::kInvalidArgument, "len(partitions)={} does not match pp_size={}. (VLLM_PP_LAYER_PARTITION={})",
                topology.layer_partition.size(), topology.pp, partition);
  }
  return {};
}

}  // namespace

Result<void> set_from_environment(const ReadEnvironment& environment, TopologySetup& topology) {
  BATON_TRY(set_devices(environment, topology));
  BATON_TRY(set_own_address(environment, topology));
  BATON_TRY_ASSIGN(topology.step_timeout_s, step_timeout_of(environment));
  topology.secret = environment("BATON_SECRET");
  return set_partition(environment, topology);
}

}  // namespace baton::apps
