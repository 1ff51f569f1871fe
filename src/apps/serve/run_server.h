// `baton serve` once its command line is understood: load, listen, serve, drain.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/serve/topology_setup.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "server/server_context.h"
#include "tensor/cpu.h"

namespace baton::apps {

struct ServeSetup {
  std::string model_path;          // folder or file, resolved
  std::string chat_template_file;  // empty: the checkpoint's
  std::string tokenizer_mode;      // empty or auto: the checkpoint's
  bool use_generation_config = true;
  nlohmann::json generation_overrides = nlohmann::json::object();  // over the checkpoint's generation_config
  int threads = 0;                                                 // 0: the cores this process may use
  tensor::Isa isa = tensor::Isa::kPortable;
  bool allow_onednn = true;
  std::string quantization;  // "ascend", or empty: as the checkpoint says
  TopologySetup topology;
  engine::EngineConfig engine;  // of every replica; the hand-off's settings: kv_transfer_of_replica
  server::ServerOptions server;
  Duration shutdown_timeout = std::chrono::seconds(0);  // how long SIGTERM lets requests go on
};

// Serves until SIGINT or SIGTERM. Errors are those of starting.
Result<void> run_server(ServeSetup setup);

}  // namespace baton::apps
