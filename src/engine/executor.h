// All ranks of an engine, as its engine thread sees them: steps go in, logits come back, in order.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/scheduler/step_plan.h"

namespace baton::engine {

class Executor {
 public:
  virtual ~Executor() = default;
  // Steps that may be under way at a time.
  virtual int depth() const = 0;
  // Starts a step; fewer than depth() are under way. One without sequences does this engine's part of a step that other
  // replicas have. kUnavailable when a rank or a process has gone, with the reason.
  virtual Result<void> begin(const StepPlan& plan) = 0;
  // Logits of the oldest step under way, [logit rows, vocab]; they hold until the next begin().
  virtual Result<const float*> finish() = 0;
  // Whether all ranks and processes are there; also seen while no step is under way.
  virtual Result<void> health() { return {}; }
  // The engine ends for this reason: tells other processes.
  virtual void leave(const std::string& /*reason*/) {}
  // The block, or slot of recurrent state, is about to get a new owner: before the next begin().
  virtual void on_block_reuse(BlockId block) = 0;
  virtual void on_slot_reuse(int32_t slot) = 0;
};

}  // namespace baton::engine
