// One rank's compute: turns a step plan into rows for the model, and logits into results. Owned by the engine thread,
// which is also thread 0 of the compute pool.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "engine/cache_shape.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduler/step_plan.h"
#include "models/model.h"
#include "tensor/buffer.h"

namespace baton::engine {

struct WorkerOptions {
  CacheShape shape;
  std::byte* kv_memory = nullptr;  // the arena; outlives the worker
  int max_rows = 0;
  int max_logit_rows = 0;  // sampled and prompt positions of a step together
  bool hash_logits = false;
  // Called in a step as the layers go by, with how many cache entries are ready; once more after it, with all.
  std::function<void(int)> on_entries;
};

class Worker {
 public:
  // Prepares the model and allocates the logits: max_logit_rows * vocabulary * 4 bytes.
  static Result<Worker> create(WorkerOptions options, models::Model& model, ComputePool& pool);

  // `states` are the plan's sequences' sampling states, in its order.
  StepResult execute(const StepPlan& plan, std::span<const SamplingState* const> states);

 private:
  Worker(WorkerOptions options, models::Model& model, ComputePool& pool, tensor::Buffer logits);
  void lay_out(const StepPlan& plan);
  void copy_states(const StepPlan& plan);
  void forward();
  kernels::CacheView cache_view() const;
  StepResult sample(const StepPlan& plan, std::span<const SamplingState* const> states);

  WorkerOptions options_;
  models::Model* model_;
  ComputePool* pool_;
  tensor::Buffer logits_;  // [max_logit_rows, vocab] fp32
  Sampler sampler_;
  std::vector<int64_t> entry_offsets_;  // bytes from a block's start

  // Reused from step to step. [rows] and [sequences].
  std::vector<int32_t> tokens_, positions_, logit_rows_, block_tables_;
  std::vector<kernels::SequenceSlice> slices_;
};

}  // namespace baton::engine
