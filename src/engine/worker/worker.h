// One rank's compute: a step's rows through its share of the model, over its part of the cache. Owned by the rank's
// thread, which is also thread 0 of its compute pool.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "engine/cache_shape.h"
#include "engine/ranks/rank_step.h"
#include "models/model.h"

namespace baton::engine {

struct WorkerOptions {
  CacheShape shape;
  std::byte* kv_memory = nullptr;  // the rank's arena; outlives the worker
  kernels::ContextSplit context;
  std::vector<std::byte*> context_memory;  // [context.size] arenas of the context ranks, in their order
  int max_rows = 0;
  int max_logit_rows = 0;  // sampled and prompt positions of a step together
  // Called in a step of which KV is pushed, with its number, as the layers go by: how many cache entries are ready.
  // Once more after it, with all.
  std::function<void(uint64_t step, int count)> on_entries;
};

// Where a step comes from and goes to. All of it is memory that the ranks of a stage share.
struct StepBuffers {
  const float* stage_in = nullptr;  // [stage_in_floats(rows)]; null on the first stage
  float* stage_out = nullptr;       // [stage_out_floats(rows)]; null on the last stage
  float* logits = nullptr;          // [logit rows, vocab]; null but on the last stage
};

class Worker {
 public:
  // Prepares the model: the ranks of a team call this together.
  static Result<Worker> create(WorkerOptions options, models::Model& model, ComputePool& pool);

  // The ranks of a team call this together, with the same step. A step of no rows does its part of what replicas
  // exchange. Throws parallel::GroupBroken when a rank of the team has gone.
  void execute(const RankStep& step, const StepBuffers& buffers);

 private:
  Worker(WorkerOptions options, models::Model& model, ComputePool& pool);
  void copy_states(const RankStep& step);
  kernels::CacheView cache_view() const;

  WorkerOptions options_;
  models::Model* model_;
  ComputePool* pool_;
  std::vector<int64_t> entry_offsets_;  // bytes from a block's start
};

}  // namespace baton::engine
