#include "apps/args/json_switches.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace baton::apps {
namespace {

using nlohmann::json;

enum class Kind : uint8_t { kDone, kInert, kRefused };

struct Switch {
  std::string_view flag;
  std::string_view path;  // dotted
  Kind kind;
  std::string_view note;
};

constexpr std::string_view kGraphs = "graph capture has no CPU counterpart";
constexpr std::string_view kNpu = "it steers the NPU's streams and fused kernels; there is no CPU counterpart";
constexpr std::string_view kMoe = "whole experts are spread over ranks, and the shared one is cut as any layer is";
constexpr std::string_view kFineTp =
    "weights are cut by outputs over all ranks of a stage, the vocabulary's too, so no part needs a size of its own";

constexpr std::array kSwitches{
    Switch{"additional-config", "enable_flashcomm1", Kind::kInert, kNpu},
    Switch{"additional-config", "multistream_overlap_shared_expert", Kind::kInert, kMoe},
    Switch{"additional-config", "enable_fused_mc2", Kind::kInert, kNpu},
    Switch{"additional-config", "enable_shared_expert_dp", Kind::kInert, kMoe},
    Switch{"additional-config", "enable_mlapo", Kind::kInert, kNpu},
    Switch{"additional-config", "enable_force_eplb", Kind::kInert, kMoe},
    Switch{"additional-config", "finegrained_tp_config", Kind::kInert, kFineTp},
    Switch{"additional-config", "baton_secret", Kind::kDone, ""},
    Switch{"additional-config", "recompute_scheduler_enable", Kind::kDone, ""},
    Switch{"additional-config", "scheduler_config.recompute_scheduler_enable", Kind::kDone, ""},
    Switch{"additional-config", "enable_balance_scheduling", Kind::kDone, ""},
    Switch{"additional-config", "scheduler_config.enable_balance_scheduling", Kind::kDone, ""},
    Switch{"attention-config", "indexer_kv_dtype", Kind::kDone, ""},
    Switch{"compilation-config", "*", Kind::kInert, kGraphs},
    Switch{"profiler-config", "*", Kind::kInert, "there is no torch profiler here"},
    Switch{"model-loader-extra-config", "enable_multithread_load", Kind::kInert, "weights load on all --threads"},
    Switch{"model-loader-extra-config", "num_threads", Kind::kInert, "weights load on all --threads"},
    Switch{"kv-transfer-config", "kv_connector", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_role", Kind::kDone, ""},
    Switch{"kv-transfer-config", "engine_id", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_port", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_ip", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_load_failure_policy", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_load_failure_policy.blocks", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_load_failure_policy.state", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_rank", Kind::kInert, "ranks find each other by host and port"},
    Switch{"kv-transfer-config", "kv_parallel_size", Kind::kInert, "ranks find each other by host and port"},
    Switch{"kv-transfer-config", "kv_buffer_device", Kind::kInert, "KV lies in the host's memory"},
    Switch{"kv-transfer-config", "kv_buffer_size", Kind::kInert, "units are moved in place, without a buffer"},
    Switch{"kv-transfer-config", "kv_connector_module_path", Kind::kInert, "Baton runs no Python"},
    Switch{"kv-transfer-config", "kv_connector_extra_config.use_ascend_direct", Kind::kInert,
           "Baton has its own transports: shared memory and TCP"},
    Switch{"kv-transfer-config", "kv_connector_extra_config.prefill.tp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.prefill.pp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.prefill.pcp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.prefill.dcp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.decode.tp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.decode.pp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.decode.pcp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.decode.dcp_size", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.prefill.*", Kind::kInert,
           "the hand-shake tells what each side holds"},
    Switch{"kv-transfer-config", "kv_connector_extra_config.decode.*", Kind::kInert,
           "the hand-shake tells what each side holds"},
    Switch{"kv-transfer-config", "kv_connector_extra_config.kv_lease_duration", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.connectors", Kind::kRefused,
           "MultiConnector and the pooled KV cache are not in this version of Baton"},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_transport", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_secret", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_peers", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_allow_other_profile", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_allow_other_version", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_tls_cert", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_tls_key", Kind::kDone, ""},
    Switch{"kv-transfer-config", "kv_connector_extra_config.baton_tls_ca", Kind::kDone, ""},
};

// "a.b" matches "a.b", and "a.*" everything below a; "*" everything.
bool covers(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path || path.starts_with(std::string(pattern) + ".");
  return path.starts_with(pattern.substr(0, pattern.size() - 1));
}

const Switch* find_switch(std::string_view flag, std::string_view path) {
  const auto it = std::find_if(kSwitches.begin(), kSwitches.end(),
                               [&](const Switch& row) { return row.flag == flag && covers(row.path, path); });
  return it == kSwitches.end() ? nullptr : &*it;
}

std::string known_keys(std::string_view flag) {
  std::string keys;
  for (const Switch& row : kSwitches) {
    if (row.flag != flag) continue;
    if (!keys.empty()) keys += ", ";
    keys += row.path;
  }
  return keys;
}

bool is_off(const json& value) { return value.is_null() || value == false || value == 0 || value == ""; }

Result<void> check_member(const std::string& flag, const std::string& path, const json& value, SwitchReport& report) {
  const Switch* row = find_switch(flag, path);
  if (row == nullptr && value.is_object()) {
    for (const auto& [key, inner] : value.items()) BATON_TRY(check_member(flag, path + "." + key, inner, report));
    return {};
  }
  if (row == nullptr) {
    if (flag != "additional-config") {
      return fail(Code::kInvalidArgument, "--{}: unknown key '{}'; known: {}", flag, path, known_keys(flag));
    }
    report.warnings.push_back(fmt::format("--{}: '{}' is not known and does nothing", flag, path));
    return {};
  }
  if (row->kind == Kind::kInert && !is_off(value)) {
    const std::string line = fmt::format("--{} {}: {}", flag, path, row->note);
    if (std::find(report.inert.begin(), report.inert.end(), line) == report.inert.end()) report.inert.push_back(line);
  }
  if (row->kind == Kind::kRefused && !is_off(value)) {
    return fail(Code::kUnimplemented, "--{} {}: {}", flag, path, row->note);
  }
  return {};
}

}  // namespace

Result<SwitchReport> check_switches(const std::string& flag, const json& value) {
  SwitchReport report;
  if (!value.is_object()) return fail(Code::kInvalidArgument, "--{}: a JSON object is needed", flag);
  for (const auto& [key, inner] : value.items()) BATON_TRY(check_member(flag, key, inner, report));
  return report;
}

}  // namespace baton::apps
