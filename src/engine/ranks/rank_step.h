// One step as the ranks are told it: the rows of all its sequences, laid out for a model, and what happens to the cache
// before them. Made once a step from the scheduler's plan, read by every rank, sent to other processes as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/scheduler/step_plan.h"
#include "kernels/kv_view.h"

namespace baton::engine {

struct RankStep {
  // [rows]
  std::vector<int32_t> tokens, positions;
  // Rows whose logits are wanted, ascending: per sequence the prompt rows, then the sampled ones.
  std::vector<int32_t> logit_rows;
  // One a sequence. Their tables lie one after the other in block_tables, table_ends[i] behind that of slice i.
  std::vector<kernels::SequenceSlice> slices;
  std::vector<int32_t> block_tables;
  std::vector<int64_t> table_ends;
  // To be made before the step, one after the other: a copy may read what one before it wrote.
  std::vector<StateCopy> state_copies;
  // Blocks and slots that got new owners since the step before.
  std::vector<BlockId> reused_blocks;
  std::vector<int32_t> reused_slots;
  // Number of the step for whom cache entries are pushed as they become ready; 0: nobody.
  uint64_t push_step = 0;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  void clear();
  // Points the slices into block_tables, once that is complete.
  void link();
};

// Replaces all of `step` but the reused blocks and slots.
void lay_out(const StepPlan& plan, RankStep& step);

}  // namespace baton::engine
