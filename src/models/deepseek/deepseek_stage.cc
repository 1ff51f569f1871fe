// The ends of a pipeline stage: what comes from the one before or from the embedding, and what goes to the next or
// becomes logits.
//
// Between stages goes the residual stream with its bank, [rows, 1 + blocks, hidden]; then, where a layer behind the
// border attends to positions that one before it chose, those, [rows, 1 + stride].
#include <algorithm>

#include "kernels/elementwise.h"
#include "models/deepseek/deepseek_step.h"

namespace baton::models {

int DeepseekModel::banked_blocks(int64_t layer) const {
  if (config_.residual_block == 0) return 0;
  return static_cast<int>((layer + config_.residual_block - 1) / config_.residual_block);
}

bool DeepseekModel::selection_crosses(int64_t layer) const {
  for (int64_t i = layer; i < std::ssize(config_.layers); ++i) {
    const IndexerRole role = config_.layers[static_cast<size_t>(i)].indexer;
    if (role != IndexerRole::kNone) return role == IndexerRole::kShared;
  }
  return false;
}

int64_t DeepseekModel::border_floats(int64_t layer, int64_t rows) const {
  const int64_t selection = selection_crosses(layer) ? IndexSelection::packed_stride(*config_.indexer) : 0;
  return rows * ((1 + banked_blocks(layer)) * config_.hidden + selection);
}

int64_t DeepseekModel::stage_in_floats(int64_t rows) const {
  return share_.first_stage() ? 0 : border_floats(share_.layers().begin, rows);
}
int64_t DeepseekModel::stage_out_floats(int64_t rows) const {
  return share_.last_stage() ? 0 : border_floats(share_.layers().end, rows);
}

void DeepseekModel::enter_stage(Step& step) {
  Scratch& scratch = step.scratch;
  const int64_t hidden = config_.hidden, first = share_.layers().begin;
  if (scratch.bank) scratch.bank->begin(step.mine.count());
  if (share_.first_stage()) {
    float* all = scratch.delta->as<float>();
    embed_tokens(embedding(), step.batch.tokens, all, hidden, step.pool);
    step.team.gathered();
    std::copy_n(all + step.mine.begin * hidden, step.mine.count() * hidden, step.residual);
    return;
  }
  const int64_t row_floats = (1 + banked_blocks(first)) * hidden;
  const float* own = step.batch.stage_in + step.mine.begin * row_floats;
  if (scratch.bank) {
    scratch.bank->unpack(own, step.mine.count(), banked_blocks(first), step.residual, step.pool);
  } else {
    std::copy_n(own, step.mine.count() * hidden, step.residual);
  }
  // Read by all before the first layer's barriers are over: each row by one rank.
  if (selection_crosses(first)) {
    scratch.selection->unpack(step.team.cut(), step.batch.stage_in + step.team.rows() * row_floats);
  }
}

void DeepseekModel::leave_stage(Step& step, float* logits) {
  if (share_.last_stage()) return write_logits(step, logits);
  const Scratch& scratch = step.scratch;
  const int64_t hidden = config_.hidden, end = share_.layers().end;
  const int64_t row_floats = (1 + banked_blocks(end)) * hidden;
  const parallel::Share cut = step.team.cut();
  const int64_t first = cut.begin - step.mine.begin;  // among the rows that the rank has
  float* own = step.batch.stage_out + cut.begin * row_floats;
  if (scratch.bank) {
    scratch.bank->pack(step.residual, first, cut.count(), own, step.pool);
  } else {
    std::copy_n(step.residual + first * hidden, cut.count() * hidden, own);
  }
  if (selection_crosses(end)) {
    scratch.selection->pack(cut, step.batch.stage_out + step.team.rows() * row_floats);
  }
}

void DeepseekModel::tap(int64_t layer, const Step& step) const {
  const auto& taps = step.batch.taps;
  if (taps.empty() || taps[static_cast<size_t>(layer)] == nullptr) return;
  const parallel::Share cut = step.team.cut();
  std::copy_n(step.residual + (cut.begin - step.mine.begin) * config_.hidden, cut.count() * config_.hidden,
              taps[static_cast<size_t>(layer)] + cut.begin * config_.hidden);
}

void DeepseekModel::write_logits(Step& step, float* logits) {
  const auto rows = step.batch.logit_rows;
  if (rows.empty()) return;
  const int64_t hidden = config_.hidden;
  const float* source = mixed(final_residual_, step);
  float* wanted = step.scratch.logit_rows.made(step.team);
  const parallel::Share some = rows_within(rows, step.mine);
  for (int64_t i = some.begin; i < some.end; ++i) {
    std::copy_n(source + (rows[static_cast<size_t>(i)] - step.mine.begin) * hidden, hidden, wanted + i * hidden);
  }
  float* own = wanted + some.begin * hidden;
  kernels::rms_norm(own, hidden, final_norm_.data(), config_.rms_epsilon, own, hidden, some.count(), hidden, isa_,
                    step.pool);
  step.team.rows_made();
  step.scratch.input.set(wanted, std::ssize(rows), hidden, &step.team);
  lm_head_.apply(step.scratch.input, logits, config_.vocab, step.pool);
}

}  // namespace baton::models
