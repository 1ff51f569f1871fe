// Builds an engine over a loaded model, or over the ranks of a grid.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "base/metrics.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/kv_host.h"
#include "engine/ranks/rank_set.h"
#include "models/model.h"
#include "parallel/mesh.h"

namespace baton::engine {

struct EngineDependencies {
  // Of the engine of one rank: used by the engine thread alone from here on. Must outlive the engine, as all pointers
  // here.
  ComputePool* pool = nullptr;
  // Absent: a private buffer, and no hand-off.
  MakeKvHost make_kv_host;
  // Null: a private registry.
  MetricRegistry* metrics = nullptr;
  // Null: the steady clock.
  const Clock* clock = nullptr;
  // The other processes that hold stages of this engine, which is the first; each runs run_member (ranks/member.h).
  // Null: all stages are here.
  parallel::Mesh* members = nullptr;
  // Replicas whose experts are shared: they step together (ranks/lockstep.h). Null: this replica steps alone.
  parallel::Mesh* replicas = nullptr;
};

// Resolves the defaults, sizes the cache, allocates, and starts the engine thread. Errors name the flag to change.
Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<RankSet> ranks,
                                            EngineDependencies dependencies);
// The grid of one rank.
Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<models::Model> model,
                                            EngineDependencies dependencies);

}  // namespace baton::engine
