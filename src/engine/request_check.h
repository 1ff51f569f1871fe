// What a request may ask for. Pure; any thread.
#pragma once

#include "base/status.h"
#include "engine/engine.h"

namespace baton::engine {

// kInvalidArgument with vLLM's words, naming the parameter. config must be resolved.
Result<void> check_request(const EngineRequest& request, const EngineConfig& config, int vocab_size);

}  // namespace baton::engine
