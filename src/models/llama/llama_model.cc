#include "models/llama/llama_model.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise.h"

namespace baton::models {

CacheNeeds LlamaModel::cache_needs() const {
  const kernels::PagedEntry entry = {.kind = kernels::PagedKind::kKeysValues,
                                     .heads = static_cast<int>(heads_.kv.count()),
                                     .dim = config_.attention.head_dim};
  CacheNeeds needs;
  for (int64_t i = share_.layers().begin; i < share_.layers().end; ++i) {
    needs.paged.push_back(entry);
    needs.parts.push_back({.index = static_cast<int>(i),
                           .first_head = static_cast<int>(heads_.kv.begin),
                           .total_heads = config_.attention.kv_heads});
  }
  return needs;
}

Result<void> LlamaModel::prepare(int max_rows, int max_logit_rows, int threads) {
  if (max_rows < 1 || max_logit_rows < 1 || threads < 1) {
    return fail(Code::kInvalidArgument, "a step needs at least one row, one logit row and one thread; got {}, {}, {}",
                max_rows, max_logit_rows, threads);
  }
  const parallel::Group& group = share_.group();
  Scratch scratch;
  scratch.max_rows = max_rows;
  scratch.max_logit_rows = max_logit_rows;
  scratch.threads = threads;
  const auto bytes = [&](int64_t rows) { return static_cast<size_t>(rows * config_.hidden) * sizeof(float); };
  BATON_TRY_ASSIGN(scratch.residual, tensor::Buffer::allocate(bytes(TeamStep::mine_max(group, max_rows))));
  BATON_TRY_ASSIGN(scratch.delta, parallel::Group(group).share(bytes(max_rows)));
  BATON_TRY_ASSIGN(scratch.normed, TeamRows::allocate(group, max_rows, config_.hidden));
  BATON_TRY_ASSIGN(scratch.logit_rows, TeamRows::allocate(group, max_logit_rows, config_.hidden));
  const int64_t widest = std::max({config_.hidden, config_.intermediate, config_.attention.q_features()});
  BATON_TRY_ASSIGN(scratch.input, QuantizedInput::allocate(std::max(max_rows, max_logit_rows), widest, group));
  BATON_TRY_ASSIGN(scratch.attention,
                   GqaScratch::allocate(config_.attention, heads_, max_rows, threads, group, share_.place()));
  BATON_TRY_ASSIGN(scratch.mlp, MlpScratch::allocate(max_rows, config_.intermediate, group));
  BATON_TRY_ASSIGN(rope_, team_rope_table(group, config_.rope, config_.max_positions));
  scratch_ = std::move(scratch);
  return {};
}

void LlamaModel::check_batch(const ForwardBatch& batch, const ComputePool& pool) const {
  BATON_CHECK(std::ssize(batch.tokens) <= scratch_.max_rows && batch.positions.size() == batch.tokens.size() &&
                  std::ssize(batch.logit_rows) <= scratch_.max_logit_rows && pool.threads() <= scratch_.threads,
              "rows={} positions={} logit_rows={} threads={} prepared for {} {} {}", batch.tokens.size(),
              batch.positions.size(), batch.logit_rows.size(), pool.threads(), scratch_.max_rows,
              scratch_.max_logit_rows, scratch_.threads);
  BATON_CHECK(
      (share_.first_stage() || batch.stage_in != nullptr) && (share_.last_stage() || batch.stage_out != nullptr),
      "stage {} without its ends", share_.place().stage);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    BATON_CHECK(batch.tokens[i] >= 0 && batch.tokens[i] < config_.vocab, "token {}", batch.tokens[i]);
    BATON_CHECK(batch.positions[i] >= 0 && batch.positions[i] < config_.max_positions, "position {}",
                batch.positions[i]);
  }
}

void LlamaModel::begin_residual(const ForwardBatch& batch, TeamStep& team, ComputePool& pool) {
  const parallel::Share mine = team.mine();
  const int64_t hidden = config_.hidden;
  const float* from = batch.stage_in;
  if (share_.first_stage()) {
    float* all = scratch_.delta->as<float>();
    embed_tokens(embedding(), batch.tokens, all, hidden, pool);
    team.gathered();
    from = all;
  }
  std::copy_n(from + mine.begin * hidden, mine.count() * hidden, scratch_.residual.as<float>());
}

// The rank's rows of residual += delta, and of its norm, which is the input of what follows.
void LlamaModel::add_norm(const std::vector<float>& weight, TeamStep& team, ComputePool& pool) {
  const parallel::Share mine = team.mine();
  const int64_t hidden = config_.hidden;
  float* normed = scratch_.normed.made(team);
  kernels::add_rms_norm(scratch_.residual.as<float>(), scratch_.delta->as<float>() + mine.begin * hidden, weight.data(),
                        config_.rms_epsilon, normed + mine.begin * hidden, mine.count(), hidden, isa_, pool);
  scratch_.input.set(normed, team.rows(), hidden, &team);  // each rank quantises the rows that it made
}

void LlamaModel::tap(const ForwardBatch& batch, int64_t layer, const TeamStep& team) const {
  if (batch.taps.empty() || batch.taps[static_cast<size_t>(layer)] == nullptr) return;
  const parallel::Share rows = team.cut();
  // Few rows: each rank has all of them.
  const int64_t first = team.mine().begin, hidden = config_.hidden;
  float* to = batch.taps[static_cast<size_t>(layer)] + rows.begin * hidden;
  const float* residual = scratch_.residual.as<float>() + (rows.begin - first) * hidden;
  std::copy_n(residual, rows.count() * hidden, to);
}

void LlamaModel::forward(const ForwardBatch& batch, float* logits, ComputePool& pool) {
  check_batch(batch, pool);
  TeamStep team(share_.group(), std::ssize(batch.tokens));
  if (team.rows() == 0) return;
  const int64_t hidden = config_.hidden;
  float* residual = scratch_.residual.as<float>();
  float* normed = scratch_.normed.made(team);
  float* delta = scratch_.delta->as<float>();

  begin_residual(batch, team, pool);
  const parallel::Share mine = team.mine();
  kernels::rms_norm(residual, hidden, layers_[0].attention_norm.data(), config_.rms_epsilon,
                    normed + mine.begin * hidden, hidden, mine.count(), hidden, isa_, pool);
  scratch_.input.set(normed, team.rows(), hidden, &team);  // each rank quantises the rows that it made
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    gqa_forward(layer.attention,
                {.shape = config_.attention,
                 .heads = heads_,
                 .positions = batch.positions.data(),
                 .cos_sin = rope_->as<float>(),
                 .slices = batch.slices,
                 .cache = batch.cache.keys_values(static_cast<int>(i)),
                 .isa = isa_},
                team, scratch_.attention, scratch_.input, delta, hidden, pool);
    batch.entries_ready(static_cast<int>(i) + 1);
    add_norm(layer.mlp_norm, team, pool);
    mlp_forward(layer.mlp, team, scratch_.mlp, scratch_.input, delta, hidden, isa_, pool);
    if (i + 1 < layers_.size()) {
      add_norm(layers_[i + 1].attention_norm, team, pool);
    } else {
      kernels::add(delta + mine.begin * hidden, hidden, residual, hidden, mine.count(), hidden, isa_, pool);
    }
    tap(batch, share_.layers().begin + static_cast<int64_t>(i), team);
  }
  leave_stage(batch, team, logits, pool);
  team.gathered();
}

void LlamaModel::leave_stage(const ForwardBatch& batch, TeamStep& team, float* logits, ComputePool& pool) {
  const int64_t hidden = config_.hidden;
  const parallel::Share mine = team.mine(), cut = team.cut();
  const float* residual = scratch_.residual.as<float>();
  if (!share_.last_stage()) {
    std::copy_n(residual + (cut.begin - mine.begin) * hidden, cut.count() * hidden,
                batch.stage_out + cut.begin * hidden);
    return;
  }
  const auto rows = batch.logit_rows;
  if (rows.empty()) return;
  float* wanted = scratch_.logit_rows.made(team);
  const parallel::Share some = rows_within(rows, mine);
  for (int64_t i = some.begin; i < some.end; ++i) {
    std::copy_n(residual + (rows[i] - mine.begin) * hidden, hidden, wanted + i * hidden);
  }
  float* own = wanted + some.begin * hidden;
  kernels::rms_norm(own, hidden, final_norm_.data(), config_.rms_epsilon, own, hidden, some.count(), hidden, isa_,
                    pool);
  team.rows_made();
  scratch_.input.set(wanted, std::ssize(rows), hidden, &team);
  lm_head_.apply(scratch_.input, logits, config_.vocab, pool);
}

}  // namespace baton::models
