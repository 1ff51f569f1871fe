// From what the user asked for to what the engine runs with. Pure but for the memory that is read by make_engine.
#pragma once

#include "base/status.h"
#include "engine/engine.h"
#include "engine/scheduler/scheduler.h"
#include "models/model.h"

namespace baton::engine {

// Rows of prompt logits in one step: bounds the logits' memory, 4 bytes * vocabulary each.
inline constexpr int kMaxPromptLogitRows = 128;

// Sets every default from the model and checks the whole; kInvalidArgument names the flag.
Result<EngineConfig> resolve_config(EngineConfig config, const models::Model& model);
// Of a resolved configuration.
SchedulerOptions scheduler_options(const EngineConfig& config);
int max_logit_rows(const EngineConfig& config);

}  // namespace baton::engine
