// The running half of a step: chunks, room for them, and whom to preempt when there is none.
#include <algorithm>

#include "engine/scheduler/scheduler.h"

namespace baton::engine {

void Scheduler::schedule_running(StepPlan& plan, Budget& budget) {
  // Preemption may take sequences out on both sides of the one at hand, so the position is found again by what is done.
  const auto order = running_;
  for (auto* sequence : order) {
    if (budget.tokens <= 0) return;
    if (sequence->stage != SequenceStage::kRunning) continue;
    const int64_t chunk = next_chunk(*sequence, budget);
    if (chunk <= 0) continue;
    if (!make_room(*sequence, sequence->computed + chunk, plan, budget)) return;
    add_step(*sequence, chunk, plan, budget);
  }
}

// False when the sequence itself had to go.
bool Scheduler::make_room(Sequence& sequence, int64_t token_capacity, StepPlan& plan, Budget& budget) {
  while (!blocks_.grow(sequence.blocks, token_capacity)) {
    auto& preempted = victim();
    take_back(preempted.id, plan, budget);
    preempt(preempted, plan);
    if (&preempted == &sequence) return false;
  }
  return true;
}

Sequence& Scheduler::victim() const {
  if (!options_.priority_scheduling) return *running_.back();
  const auto more_important = [](const Sequence* a, const Sequence* b) {
    return std::tuple(a->priority, a->id.value) < std::tuple(b->priority, b->id.value);
  };
  return **std::ranges::max_element(running_, more_important);
}

// Undoes a step that the plan already holds for a sequence about to be preempted.
void Scheduler::take_back(SequenceId id, StepPlan& plan, Budget& budget) {
  const auto step = std::ranges::find(plan.sequences, id, &SequenceStep::sequence);
  if (step == plan.sequences.end()) return;
  budget.tokens += static_cast<int64_t>(step->tokens.size());
  budget.prompt_rows += static_cast<int64_t>(step->prompt_rows.size());
  plan.row_count -= static_cast<int64_t>(step->tokens.size());
  plan.sequences.erase(step);
}

int64_t Scheduler::next_chunk(const Sequence& sequence, const Budget& budget) const {
  int64_t chunk = std::min(sequence.size() - sequence.computed, budget.tokens);
  if (options_.long_prefill_token_threshold > 0) chunk = std::min(chunk, options_.long_prefill_token_threshold);
  if (keeps_state()) chunk = std::min(chunk, next_state_cut(sequence) - sequence.computed);
  if (!sequence.needs_prompt_logits()) return chunk;
  const int64_t first_row = std::max(sequence.computed, sequence.next_prompt_target - 1);
  const int64_t end_row = std::min(sequence.computed + chunk, sequence.prompt_count - 1);
  if (end_row - first_row <= budget.prompt_rows) return chunk;
  return first_row + budget.prompt_rows - sequence.computed;
}

void Scheduler::add_step(Sequence& sequence, int64_t chunk, StepPlan& plan, Budget& budget) {
  const int64_t begin = sequence.computed, end = begin + chunk;
  SequenceStep step;
  step.sequence = sequence.id;
  step.first_position = begin;
  step.tokens.assign(sequence.tokens.begin() + begin, sequence.tokens.begin() + end);
  step.block_tables.push_back(sequence.blocks.table);
  if (keeps_state()) add_state(sequence, step);
  if (end == sequence.size()) {
    step.sample_rows.push_back(static_cast<int32_t>(chunk - 1));
    step.check_first_token = sequence.expected_first_token.has_value();
  }
  if (sequence.needs_prompt_logits()) {
    const int64_t last_row = std::min(end, sequence.prompt_count - 1);
    for (int64_t row = std::max(begin, sequence.next_prompt_target - 1); row < last_row; ++row) {
      step.prompt_rows.push_back(static_cast<int32_t>(row - begin));
      step.prompt_targets.push_back(sequence.tokens[static_cast<size_t>(row + 1)]);
    }
  }
  budget.tokens -= chunk;
  budget.prompt_rows -= static_cast<int64_t>(step.prompt_rows.size());
  plan.row_count += chunk;
  plan.sequences.push_back(std::move(step));
}

}  // namespace baton::engine
