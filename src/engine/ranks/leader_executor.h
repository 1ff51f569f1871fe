// The executor of an engine whose stages live in several processes, in the first of them: tells the others each step,
// computes the first stages, passes on what they leave, gets the logits back.
//
// Each process takes steps in the order told; while a later one computes a step, this one may begin the next. What a
// stage leaves is sent by the rank that left it, so that no stage waits for the engine thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "engine/executor.h"
#include "engine/ranks/local_pipeline.h"
#include "parallel/mesh.h"

namespace baton::engine {

class LeaderExecutor final : public Executor {
 public:
  // The pipeline has as many slots as steps may be under way in all processes together. `wake` is called, by any
  // thread, when a member is lost.
  LeaderExecutor(parallel::Mesh& mesh, std::unique_ptr<LocalPipeline> pipeline, int vocab_size,
                 std::function<void()> wake);
  // Tells the members to end, and waits for them a little.
  ~LeaderExecutor() override;

  int depth() const override { return pipeline_->slots(); }
  Result<void> begin(const StepPlan& plan) override;
  Result<const float*> finish() override;
  Result<void> health() override;
  void leave(const std::string& reason) override { mesh_.leave(reason); }
  void on_block_reuse(BlockId block) override { reused_blocks_.push_back(block); }
  void on_slot_reuse(int32_t slot) override { reused_slots_.push_back(slot); }

 private:
  Result<void> tell_all(std::span<const std::byte> message);
  // The reason of a lost member, where the ranks here only saw its consequence.
  Status reason_of(Status seen) const;

  // The mesh may outlive the engine.
  struct Waker {
    std::mutex mutex;
    std::function<void()> wake;
  };

  parallel::Mesh& mesh_;
  const std::shared_ptr<Waker> waker_;
  const size_t row_bytes_;  // of logits
  const std::unique_ptr<LocalPipeline> pipeline_;
  std::vector<BlockId> reused_blocks_;
  std::vector<int32_t> reused_slots_;
  parallel::MessageBytes logits_;
};

}  // namespace baton::engine
