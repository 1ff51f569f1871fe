// The running half of a step: chunks, room for them, and whom to preempt when there is none.
#include <algorithm>

#include "engine/scheduler/scheduler.h"

namespace baton::engine {

void Scheduler::schedule_running(StepPlan& plan, Budget& budget) {
  // Preemption may take sequences out on both sides of the one at hand, so the position is found again by what is done.
  const auto order = running_;
  const auto most = static_cast<size_t>(sequences_per_plan());
  for (auto* sequence : order) {
    if (budget.tokens <= 0 || plan.sequences.size() >= most) return;
    if (sequence->stage != SequenceStage::kRunning) continue;
    // Its recurrent state is that of one position: the next step needs what this one leaves.
    if (keeps_state() && sequence->steps_under_way > 0) continue;
    const int64_t chunk = next_chunk(*sequence, budget);
    if (chunk <= 0) continue;
    if (!make_room(*sequence, sequence->planned() + chunk, plan, budget)) return;
    add_step(*sequence, chunk, plan, budget);
  }
}

int64_t Scheduler::sequences_per_plan() const {
  if (options_.depth == 1) return options_.max_num_seqs;
  return std::max<int64_t>(1, (running() + options_.depth - 1) / options_.depth);
}

// m equal steps keep each of d stages busy for m of m + d - 1 of the time, so the tokens at hand make 2 d steps. The
// next chunk of a sequence with recurrent state waits for the one before it: alone, it gains nothing from shorter ones.
int64_t Scheduler::tokens_per_plan() const {
  const int64_t most = options_.max_num_batched_tokens;
  if (options_.depth == 1 || (keeps_state() && running_.size() + waiting_.size() < 2)) return most;
  const int64_t steps = int64_t{2} * options_.depth;
  int64_t at_hand = 0;
  for (const auto* sequence : running_) at_hand += sequence->size() - sequence->computed;
  for (const auto& [key, sequence] : waiting_) {
    if (at_hand >= most * steps) break;
    at_hand += sequence->size() - sequence->computed;
  }
  return std::clamp((at_hand + steps - 1) / steps, std::min(options_.least_chunk, most), most);
}

// False when the sequence itself had to go, or must wait for a step under way.
bool Scheduler::make_room(Sequence& sequence, int64_t token_capacity, StepPlan& plan, Budget& budget) {
  while (!blocks_.grow(sequence.blocks, token_capacity)) {
    auto* preempted = victim(sequence);
    if (preempted == nullptr) return false;
    take_back(preempted->id, plan, budget);
    preempt(*preempted, plan);
    if (preempted == &sequence) return false;
  }
  return true;
}

// The last of those that have no step under way. Null where only the sequence itself, or a more important one, is left,
// and the end of a step may bring room.
Sequence* Scheduler::victim(const Sequence& for_whom) const {
  const auto key = [&](const Sequence* sequence) {
    return std::tuple(
        options_.priority_scheduling ? sequence->priority : 0,
        options_.priority_scheduling ? sequence->id.value : std::ranges::find(running_, sequence) - running_.begin());
  };
  Sequence* last = nullptr;
  for (auto* sequence : running_) {
    if (sequence->steps_under_way > 0) continue;
    if (last == nullptr || key(sequence) > key(last)) last = sequence;
  }
  if (plans_under_way_ > 0 && (last == nullptr || key(last) <= key(&for_whom))) return nullptr;
  return last;
}

// Undoes a step that the plan already holds for a sequence about to be preempted.
void Scheduler::take_back(SequenceId id, StepPlan& plan, Budget& budget) {
  const auto step = std::ranges::find(plan.sequences, id, &SequenceStep::sequence);
  if (step == plan.sequences.end()) return;
  budget.tokens += static_cast<int64_t>(step->tokens.size());
  budget.prompt_rows += static_cast<int64_t>(step->prompt_rows.size());
  plan.row_count -= static_cast<int64_t>(step->tokens.size());
  find(id)->tokens_under_way -= static_cast<int64_t>(step->tokens.size());
  plan.sequences.erase(step);
}

int64_t Scheduler::next_chunk(const Sequence& sequence, const Budget& budget) const {
  int64_t chunk = std::min(sequence.size() - sequence.planned(), budget.tokens);
  if (options_.long_prefill_token_threshold > 0) chunk = std::min(chunk, options_.long_prefill_token_threshold);
  if (keeps_state()) chunk = std::min(chunk, next_state_cut(sequence) - sequence.planned());
  if (!sequence.needs_prompt_logits()) return chunk;
  const int64_t first_row = std::max(sequence.planned(), sequence.next_prompt_target - 1);
  const int64_t end_row = std::min(sequence.planned() + chunk, sequence.prompt_count - 1);
  if (end_row - first_row <= budget.prompt_rows) return chunk;
  return first_row + budget.prompt_rows - sequence.planned();
}

void Scheduler::add_step(Sequence& sequence, int64_t chunk, StepPlan& plan, Budget& budget) {
  const int64_t begin = sequence.planned(), end = begin + chunk;
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
  sequence.tokens_under_way += chunk;
  plan.sequences.push_back(std::move(step));
}

}  // namespace baton::engine
