#include "engine/ranks/local_executor.h"

namespace baton::engine {

Result<void> LocalExecutor::begin(const StepPlan& plan) {
  lay_out(plan, pipeline_->next_step());
  pipeline_->start();
  return {};
}

Result<const float*> LocalExecutor::finish() {
  BATON_TRY_ASSIGN(const auto output, pipeline_->take());
  return output.logits;
}

}  // namespace baton::engine
