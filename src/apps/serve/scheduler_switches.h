// The schedulers of vLLM-Ascend's --additional-config and environment: which of them the engine is to have.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/args/resolve_model.h"
#include "base/status.h"
#include "engine/engine.h"

namespace baton::apps {

// config.kv_transfer is set already. What is accepted and does nothing here is logged with the reason.
// kInvalidArgument: the recompute scheduler without a hand-off, or with balance scheduling on a decode engine.
Result<void> set_schedulers(const nlohmann::json& additional_config, int data_parallel_size,
                            const ReadEnvironment& environment, engine::EngineConfig& config);

}  // namespace baton::apps
