// The executor of an engine whose ranks all live in this process.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "engine/ranks/local_pipeline.h"

namespace baton::engine {

class LocalExecutor final : public Executor {
 public:
  explicit LocalExecutor(std::unique_ptr<LocalPipeline> pipeline) : pipeline_(std::move(pipeline)) {}
  int depth() const override { return pipeline_->slots(); }
  Result<void> begin(const StepPlan& plan) override;
  Result<const float*> finish() override;
  void on_block_reuse(BlockId) override {}
  void on_slot_reuse(int32_t) override {}

 private:
  const std::unique_ptr<LocalPipeline> pipeline_;
};

}  // namespace baton::engine
