#include "apps/serve/scheduler_switches.h"

#include "base/log.h"

namespace baton::apps {
namespace {

using nlohmann::json;

// A switch at the top level or, as newer releases have it, in scheduler_config.
Result<bool> switch_of(const json& additional, const char* name) {
  const auto read = [&](const json& object) -> Result<bool> {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return false;
    if (!found->is_boolean()) {
      return fail(Code::kInvalidArgument, "--additional-config {}: true or false, not {}", name, found->dump());
    }
    return found->get<bool>();
  };
  if (!additional.is_object()) return false;
  BATON_TRY_ASSIGN(bool on, read(additional));
  if (const auto inner = additional.find("scheduler_config"); inner != additional.end() && inner->is_object()) {
    BATON_TRY_ASSIGN(const bool inner_on, read(*inner));
    on = on || inner_on;
  }
  return on;
}

Result<void> set_recompute(engine::EngineConfig& config) {
  switch (config.kv_transfer.role) {
    case engine::KvRole::kConsumer:
      config.recompute_scheduler = true;
      log_info(
          "recompute scheduler: a running request that finds no free KV block goes back through the proxy to a "
          "prefill engine, with its tokens");
      return {};
    case engine::KvRole::kProducer:
      log_warning(
          "--additional-config recompute_scheduler_enable: ignored by a kv_producer; it is the decode engine's");
      return {};
    case engine::KvRole::kBoth:
    case engine::KvRole::kNone:
      break;
  }
  return fail(Code::kInvalidArgument,
              "--additional-config recompute_scheduler_enable: only for decode engines (kv_role kv_consumer in "
              "--kv-transfer-config): it sends requests back to a prefill engine");
}

void explain_balance(const engine::EngineConfig& config, int data_parallel_size) {
  if (config.kv_transfer.role != engine::KvRole::kNone) {
    log_warning("balance scheduling: ignored with --kv-transfer-config; it is for engines that prefill and decode");
  } else if (data_parallel_size <= 1) {
    log_warning("balance scheduling: ignored; one data-parallel rank has nothing to balance");
  } else {
    log_warning(
        "balance scheduling: accepted and without effect; each data-parallel rank admits requests as it has "
        "room, which changes waiting times and no tokens");
  }
}

}  // namespace

Result<void> set_schedulers(const json& additional_config, int data_parallel_size, const ReadEnvironment& environment,
                            engine::EngineConfig& config) {
  BATON_TRY_ASSIGN(const bool recompute, switch_of(additional_config, "recompute_scheduler_enable"));
  BATON_TRY_ASSIGN(bool balance, switch_of(additional_config, "enable_balance_scheduling"));
  const std::string from_environment = environment("VLLM_ASCEND_BALANCE_SCHEDULING");
  balance = balance || (!from_environment.empty() && from_environment != "0");
  if (recompute && balance && config.kv_transfer.role == engine::KvRole::kConsumer) {
    return fail(Code::kInvalidArgument,
                "the recompute scheduler and balance scheduling (enable_balance_scheduling or "
                "VLLM_ASCEND_BALANCE_SCHEDULING) are known to hang together on a decode engine: switch one off");
  }
  if (recompute) BATON_TRY(set_recompute(config));
  if (balance) explain_balance(config, data_parallel_size);
  return {};
}

}  // namespace baton::apps
