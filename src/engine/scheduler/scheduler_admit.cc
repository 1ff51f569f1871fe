// The waiting half of a step: who starts, from which cached prefix, or by fetching KV from another engine.
#include <utility>

#include "base/check.h"
#include "engine/scheduler/scheduler.h"

namespace baton::engine {

void Scheduler::schedule_waiting(StepPlan& plan, Budget& budget) {
  while (!waiting_.empty() && budget.tokens > 0 && running() < options_.max_num_seqs) {
    auto& sequence = *waiting_.begin()->second;
    if (admit(sequence, plan, budget) == Admission::kNoRoom) return;
  }
}

Scheduler::Admission Scheduler::admit(Sequence& sequence, StepPlan& plan, Budget& budget) {
  if (sequence.remote_prefill && start_load(sequence, plan) != Admission::kRuns) {
    return sequence.stage == SequenceStage::kLoading ? Admission::kLoads : Admission::kNoRoom;
  }
  const auto key = waiting_key(sequence);
  const bool holds_blocks = !sequence.blocks.table.empty();
  Prefix hit;
  if (!holds_blocks) {
    hit = find_prefix(sequence);
    sequence.computed = static_cast<int64_t>(hit.blocks.size()) * blocks_.block_size();
    sequence.state.seen_before = hit.seen_tokens;
  }
  const int64_t chunk = next_chunk(sequence, budget);
  const int64_t capacity = sequence.computed + chunk;
  const bool fits =
      chunk > 0 && (holds_blocks ? blocks_.grow(sequence.blocks, capacity)
                                 : state_fits(sequence) && blocks_.begin(sequence.blocks, hit.blocks, capacity));
  if (!fits) {
    if (!holds_blocks) sequence.computed = 0;
    return Admission::kNoRoom;
  }
  waiting_.erase(key);
  turn_served_ = std::max(turn_served_, sequence.turn);
  if (!holds_blocks) begin_state(sequence, hit);
  if (!sequence.ran_before && !holds_blocks) count_prefix(sequence, sequence.computed);
  sequence.ran_before = true;
  sequence.stage = SequenceStage::kRunning;
  running_.push_back(&sequence);
  add_step(sequence, chunk, plan, budget);
  return Admission::kRuns;
}

// kRuns: there is nothing to fetch, and the sequence goes on as any other.
Scheduler::Admission Scheduler::start_load(Sequence& sequence, StepPlan& plan) {
  BATON_CHECK(sequence.blocks.table.empty() && !sequence.ran_before);
  const int64_t total = sequence.size();
  const auto hit = find_prefix(sequence);
  const int64_t hit_tokens = static_cast<int64_t>(hit.blocks.size()) * blocks_.block_size();
  const auto& remote = *sequence.remote_prefill;
  // Another count means another prompt: its KV is not ours.
  const bool other_prompt = remote.token_count != 0 && remote.token_count != total;
  if (other_prompt || sequence.needs_prompt_logits() || hit_tokens >= total - 1) {
    if (!other_prompt) sequence.expected_first_token = remote.last_token;
    sequence.remote_prefill.reset();
    plan.declined.push_back(sequence.id);
    return Admission::kRuns;
  }
  const auto key = waiting_key(sequence);
  // The state comes from the other engine, so every cached block is of use, with or without a state of its own.
  const auto here = keeps_state() ? blocks_.find_prefix(sequence.blocks, sequence.tokens) : hit.blocks;
  const int64_t here_tokens = static_cast<int64_t>(here.size()) * blocks_.block_size();
  if (!state_fits(sequence) || !blocks_.begin(sequence.blocks, here, total)) return Admission::kNoRoom;
  waiting_.erase(key);
  turn_served_ = std::max(turn_served_, sequence.turn);
  begin_state(sequence, {});
  count_prefix(sequence, here_tokens);
  sequence.expected_first_token = remote.last_token;
  sequence.remote_prefill.reset();
  sequence.computed = here_tokens;
  sequence.stage = SequenceStage::kLoading;
  ++loading_;
  plan.loads.push_back({.sequence = sequence.id,
                        .blocks = sequence.blocks.table,
                        .token_count = total,
                        .skip_tokens = here_tokens,
                        .prompt = wire::prompt_digest(sequence.tokens),
                        .state_slot = sequence.state.slot});
  return Admission::kLoads;
}

Scheduler::Prefix Scheduler::find_prefix(Sequence& sequence) {
  if (sequence.needs_prompt_logits()) return {};
  auto blocks = blocks_.find_prefix(sequence.blocks, sequence.tokens);
  if (keeps_state()) return with_state(sequence, std::move(blocks));
  return {.blocks = std::move(blocks)};
}

void Scheduler::count_prefix(Sequence& sequence, int64_t hit_tokens) {
  counters_.prefix_queries += sequence.size();
  counters_.prefix_hits += hit_tokens;
  sequence.cached_tokens = hit_tokens;
}

}  // namespace baton::engine
