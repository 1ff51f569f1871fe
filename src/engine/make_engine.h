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
#include "engine/replica_group.h"
#include "models/model.h"

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
  // Absent: this replica steps alone. Gets what wakes the engine.
  std::function<std::unique_ptr<ReplicaGroup>(std::function<void()> wake)> make_replica_group;
};

// Resolves the defaults, sizes the cache, allocates, and starts the engine thread. Errors name the flag to change.
Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<RankSet> ranks,
                                            EngineDependencies dependencies);
// The grid of one rank.
Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<models::Model> model,
                                            EngineDependencies dependencies);

}  // namespace baton::engine
