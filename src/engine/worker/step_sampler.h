// From a step's logits to what update() takes. The engine's first process samples; engine thread.
#pragma once

#include <span>

#include "engine/sampling/sampler.h"
#include "engine/scheduler/step_plan.h"

namespace baton::engine {

class StepSampler {
 public:
  StepSampler(int vocab_size, bool hash_logits, ComputePool& pool);
  // logits: [logit rows of the plan, vocab]. `states` are the plan's sequences' sampling states, in its order.
  StepResult sample(const StepPlan& plan, std::span<const SamplingState* const> states, const float* logits);

 private:
  const size_t vocab_size_;
  const bool hash_logits_;
  ComputePool& pool_;
  Sampler sampler_;
};

}  // namespace baton::engine
