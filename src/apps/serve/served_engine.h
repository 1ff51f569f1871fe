// What stands behind the API of `baton serve`: the replicas of this process, their ranks, and the meshes over which
// they work with other processes. Also the process that holds some stages of an engine and serves nobody (--headless).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/serve/rank_threads.h"
#include "apps/serve/run_server.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "engine/kv_host.h"
#include "engine/ranks/lockstep.h"
#include "parallel/mesh.h"

namespace baton::apps {

struct EngineSources {
  const ServeSetup& setup;  // its engine's configuration is that of every replica
  RankThreads threads;
  // What processes that work together must have in common.
  std::string fingerprint;
  MetricRegistry& metrics;
  // Of a replica's configuration; empty: no hand-off.
  std::function<engine::MakeKvHost(const engine::EngineConfig&, MetricRegistry&)> make_kv_host;
};

// Destroyed from the last member to the first.
struct ServedEngine {
  std::unique_ptr<parallel::Mesh> members;                // other processes of this engine; null: none
  std::vector<std::unique_ptr<parallel::Mesh>> replicas;  // one a local replica, where replicas share experts
  std::vector<std::unique_ptr<engine::MeshExchange>> exchanges;
  std::vector<std::unique_ptr<MetricRegistry>> registries;  // of local replicas, where they are several
  std::unique_ptr<engine::Engine> engine;
};

// Why the engine can't go on, where that is the end of another process and not of anything here.
std::optional<Status> left_by_others(const ServedEngine& served);

// Meets whoever works with this process, loads, and starts the engine threads.
Result<ServedEngine> make_served_engine(const EngineSources& sources);

// Loads this process's stages and works for the leading process until it ends (then without an error), or until a
// signal asks this one to stop.
Result<void> run_headless(const EngineSources& sources);

}  // namespace baton::apps
