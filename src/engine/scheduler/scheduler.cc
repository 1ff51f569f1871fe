#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace baton::engine {

Scheduler::Scheduler(SchedulerOptions options, kv::BlockManager& blocks, kv::StatePool& states)
    : options_(std::move(options)), blocks_(blocks), states_(states) {
  BATON_CHECK(options_.max_model_len > 0 && options_.max_num_batched_tokens > 0 && options_.max_num_seqs > 0 &&
              options_.max_prompt_logit_rows > 0);
}

namespace {

constexpr int64_t kTokensPerTurn = 1024;
constexpr size_t kClientsKept = 64;

}  // namespace

// Names come from outside: of those that ask for nothing now, some are remembered.
void Scheduler::forget_clients() {
  if (next_turns_.size() <= 2 * sequences_.size() + kClientsKept) return;
  std::unordered_set<std::string_view> here;
  for (const auto& [id, sequence] : sequences_) here.insert(sequence->client);
  std::erase_if(next_turns_, [&](const auto& entry) { return !here.contains(entry.first); });
}

// A long prompt costs its client more turns.
int64_t Scheduler::take_turn(const Sequence& sequence) {
  forget_clients();
  int64_t& next = next_turns_[sequence.client];
  const int64_t turn = std::max(next, turn_served_);
  next = turn + 1 + sequence.size() / kTokensPerTurn;
  return turn;
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  sequence->turn = take_turn(*sequence);
  wait(*sequence);
  sequences_.emplace(sequence->id, std::move(sequence));
}

StepPlan Scheduler::schedule() {
  StepPlan plan;
  plan.number = ++step_number_;
  Budget budget{.tokens = tokens_per_plan(), .prompt_rows = options_.max_prompt_logit_rows};
  preempt_at_random(plan);
  schedule_running(plan, budget);
  if (plan.preempted == 0) schedule_waiting(plan, budget);
  for (const auto& step : plan.sequences) ++find(step.sequence)->steps_under_way;
  if (!plan.sequences.empty()) ++plans_under_way_;
  return plan;
}

Scheduler::WaitingKey Scheduler::waiting_key(const Sequence& sequence) const {
  return {sequence.blocks.table.empty(), options_.priority_scheduling ? sequence.priority : 0, sequence.turn,
          sequence.id.value};
}

void Scheduler::wait(Sequence& sequence) {
  sequence.stage = SequenceStage::kWaiting;
  waiting_.emplace(waiting_key(sequence), &sequence);
}

void Scheduler::preempt(Sequence& sequence, StepPlan& plan) {
  std::erase(running_, &sequence);
  blocks_.release(sequence.blocks);
  release_state(sequence);
  sequence.computed = 0;
  ++plan.preempted;
  const bool leaves = options_.recompute_elsewhere && sequence.may_leave;
  ++(leaves ? counters_.recomputed : counters_.preemptions);
  if (leaves) plan.leaving.push_back(sequence.id);
  wait(sequence);
}

void Scheduler::preempt_at_random(StepPlan& plan) {
  if (options_.test_preempt_probability <= 0 || running_.empty()) return;
  const auto next = [&] {
    random_state_ ^= random_state_ << 13;
    random_state_ ^= random_state_ >> 7;
    random_state_ ^= random_state_ << 17;
    return random_state_ >> 11;
  };
  if (static_cast<double>(next()) * 0x1p-53 >= options_.test_preempt_probability) return;
  auto& sequence = *running_[next() % running_.size()];
  if (sequence.steps_under_way > 0) return;
  preempt(sequence, plan);
}

void Scheduler::finish_load(SequenceId id, int64_t valid_tokens, bool state_valid) {
  auto* sequence = find(id);
  BATON_CHECK(sequence != nullptr && sequence->stage == SequenceStage::kLoading, "sequence {}", id);
  --loading_;
  const int64_t valid = std::clamp(valid_tokens, sequence->computed, sequence->size());
  if (keeps_state() && (valid < sequence->size() || !state_valid)) return drop_load(*sequence, valid);
  sequence->external_tokens = valid - sequence->computed;
  // The last token is always computed here, for its logits.
  sequence->computed = std::min(valid, sequence->size() - 1);
  blocks_.publish(sequence->blocks, sequence->tokens, sequence->computed);
  wait(*sequence);
}

// The tokens that came are left in the prefix cache, and the sequence starts as if nothing had come: from the best
// state that was kept here.
void Scheduler::drop_load(Sequence& sequence, int64_t valid_tokens) {
  blocks_.publish(sequence.blocks, sequence.tokens, valid_tokens);
  blocks_.release(sequence.blocks);
  release_state(sequence);
  sequence.computed = 0;
  wait(sequence);
}

Scheduler::Removed Scheduler::remove(SequenceId id) {
  auto sequence = extract(id);
  if (sequence == nullptr) return {};
  if (sequence->stage == SequenceStage::kLoading) {
    --loading_;
    auto held = blocks_.detach(sequence->blocks);
    const auto held_state = std::exchange(sequence->state.slot, std::nullopt);
    release_state(*sequence);
    return {.sequence = std::move(sequence), .still_held = std::move(held), .still_held_state = held_state};
  }
  blocks_.release(sequence->blocks);
  release_state(*sequence);
  return {.sequence = std::move(sequence), .still_held = {}, .still_held_state = {}};
}

// Out of every list; blocks and `loading_` are left to the caller.
std::unique_ptr<Sequence> Scheduler::extract(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return nullptr;
  auto sequence = std::move(found->second);
  sequences_.erase(found);
  if (sequence->stage == SequenceStage::kRunning) std::erase(running_, sequence.get());
  if (sequence->stage == SequenceStage::kWaiting) waiting_.erase(waiting_key(*sequence));
  return sequence;
}

Sequence* Scheduler::find(SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

std::vector<SequenceId> Scheduler::ids() const {
  std::vector<SequenceId> all;
  for (const auto& [id, sequence] : sequences_) all.push_back(id);
  std::ranges::sort(all);
  return all;
}

std::optional<SequenceId> Scheduler::first_waiting() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.begin()->second->id;
}

}  // namespace baton::engine
