// What a step's results mean: tokens taken, requests ended, blocks published, kept or freed.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler/scheduler.h"

namespace baton::engine {
namespace {

bool among(const std::vector<TokenId>& tokens, TokenId token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

}  // namespace

std::vector<SequenceUpdate> Scheduler::update(const StepPlan& plan, StepResult result) {
  BATON_CHECK(result.sequences.size() == plan.sequences.size());
  std::vector<SequenceUpdate> updates;
  if (!plan.sequences.empty()) --plans_under_way_;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const auto& step = plan.sequences[i];
    auto* sequence = find(step.sequence);
    BATON_CHECK(sequence != nullptr, "sequence {} left between schedule and update", step.sequence);
    sequence->computed += static_cast<int64_t>(step.tokens.size());
    sequence->tokens_under_way -= static_cast<int64_t>(step.tokens.size());
    --sequence->steps_under_way;
    blocks_.publish(sequence->blocks, sequence->tokens, sequence->computed);
    if (keeps_state()) settle_state(*sequence);
    for (auto& prompt : result.sequences[i].prompts) {
      sequence->prompt_results.push_back(std::move(prompt));
      ++sequence->next_prompt_target;
    }
    if (step.sample_rows.empty()) continue;
    auto& update = updates.emplace_back();
    update.sequence = sequence;
    take_samples(*sequence, std::move(result.sequences[i].samples), update);
    if (update.finish) finish(*sequence, update);
  }
  return updates;
}

void Scheduler::take_samples(Sequence& sequence, std::vector<SampleResult> samples, SequenceUpdate& update) {
  for (auto& sample : samples) {
    if (!sample.token) {
      update.finish = FinishReason::kError;
      update.error = sample.token.error();
      return;
    }
    const auto token = *sample.token;
    if (const auto expected = std::exchange(sequence.expected_first_token, std::nullopt)) {
      update.first_token_mismatch = token != *expected && sample.before_end != *expected;
    }
    sequence.tokens.push_back(token);
    sequence.sampling.accept(token);
    update.taken.push_back(std::move(sample));
    check_stop(sequence, token, update);
    if (update.finish) return;
  }
}

void Scheduler::check_stop(const Sequence& sequence, TokenId token, SequenceUpdate& update) const {
  const auto& params = sequence.sampling.params();
  if (sequence.output_count() >= params.min_tokens) {
    if (!params.ignore_eos && among(options_.eos_token_ids, token)) {
      update.finish = FinishReason::kStop;
      return;
    }
    if (among(params.stop_token_ids, token)) {
      update.finish = FinishReason::kStop;
      update.stop_token = token;
      return;
    }
  }
  if (sequence.size() >= options_.max_model_len || sequence.new_tokens() >= params.max_tokens) {
    update.finish = FinishReason::kLength;
  }
}

void Scheduler::finish(Sequence& sequence, SequenceUpdate& update) {
  update.finished = extract(sequence.id);
  if (!sequence.remote_decode || update.finish != FinishReason::kLength) {
    blocks_.release(sequence.blocks);
    release_state(sequence);
    return;
  }
  const auto given = static_cast<size_t>(sequence.given_count);
  // Another engine gets the prompt's KV; what was generated after the first token stays here.
  auto held = blocks_.detach(sequence.blocks);
  const auto kept = static_cast<size_t>(blocks_.blocks_for(sequence.given_count));
  blocks_.release_blocks(std::span(held).subspan(kept));
  held.resize(kept);
  std::optional<kv::StateSlot> state;
  if (sequence.state.handoff_made) state = std::exchange(sequence.state.handoff, std::nullopt);
  release_state(sequence);
  update.save = KvSave{.blocks = std::move(held),
                       .token_count = sequence.given_count,
                       .last_token = sequence.tokens[given],
                       .prompt = wire::prompt_digest(std::span(sequence.tokens).first(given)),
                       .state_slot = state};
}

}  // namespace baton::engine
