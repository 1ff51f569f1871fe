#include "engine/ranks/rank_step.h"

namespace baton::engine {
namespace {

void add_sequence(const SequenceStep& sequence, RankStep& step) {
  const auto row_begin = static_cast<int32_t>(step.tokens.size());
  step.slices.push_back({.context_len = sequence.first_position,
                         .row_begin = row_begin,
                         .row_count = static_cast<int>(sequence.tokens.size()),
                         .state_slot = sequence.state_slot ? sequence.state_slot->value : -1});
  for (const auto block : sequence.block_tables[0]) step.block_tables.push_back(block.value);
  step.table_ends.push_back(static_cast<int64_t>(step.block_tables.size()));
  for (size_t i = 0; i < sequence.tokens.size(); ++i) {
    step.tokens.push_back(sequence.tokens[i]);
    step.positions.push_back(static_cast<int32_t>(sequence.first_position + static_cast<int64_t>(i)));
  }
  // A row is either a prompt row or a sample row, and a sequence's prompt rows come first.
  for (const auto row : sequence.prompt_rows) step.logit_rows.push_back(row_begin + row);
  for (const auto row : sequence.sample_rows) step.logit_rows.push_back(row_begin + row);
  step.state_copies.insert(step.state_copies.end(), sequence.state_copies.begin(), sequence.state_copies.end());
}

}  // namespace

void RankStep::clear() {
  tokens.clear();
  positions.clear();
  logit_rows.clear();
  slices.clear();
  block_tables.clear();
  table_ends.clear();
  state_copies.clear();
  reused_blocks.clear();
  reused_slots.clear();
  push_step = 0;
}

void RankStep::link() {
  for (size_t i = 0; i < slices.size(); ++i) {
    slices[i].block_table = block_tables.data() + (i == 0 ? 0 : table_ends[i - 1]);
  }
}

void lay_out(const StepPlan& plan, RankStep& step) {
  auto blocks = std::move(step.reused_blocks);
  auto slots = std::move(step.reused_slots);
  step.clear();
  step.reused_blocks = std::move(blocks);
  step.reused_slots = std::move(slots);
  step.push_step = plan.pushes ? plan.number : 0;
  for (const auto& sequence : plan.sequences) add_sequence(sequence, step);
  step.link();
}

}  // namespace baton::engine
