// The engine's KV in shared memory, with the pull connector's two ends over it: what --kv-transfer-config asks for.
#pragma once

#include <string>

#include "base/metrics.h"
#include "engine/engine.h"
#include "engine/kv_host.h"
#include "wire/handshake.h"

namespace baton::apps {

struct HandoffHostOptions {
  engine::KvTransferConfig config;
  wire::NumericProfile profile;
  std::string tokenizer_hash, model_config, quantisation;  // as in wire::EngineIdentity
  MetricRegistry* metrics = nullptr;
};

engine::MakeKvHost handoff_host_factory(HandoffHostOptions options);

}  // namespace baton::apps
