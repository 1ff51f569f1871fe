#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "models/deepseek/deepseek_step.h"

namespace baton::models {

DeepseekModel::DeepseekModel() = default;
DeepseekModel::~DeepseekModel() = default;

void DeepseekModel::set_shapes() {
  moe_shape_.hidden = config_.hidden;
  if (config_.situ) {
    moe_shape_.activation = {.kind = GatedActivation::Kind::kSitu,
                             .bounds = {.beta = config_.situ->beta, .linear_beta = config_.situ->linear_beta}};
  }
  if (config_.moe) {
    const MoeConfig& moe = *config_.moe;
    moe_shape_.router = {.experts = moe.experts,
                         .top_k = moe.experts_per_token,
                         .groups = moe.groups,
                         .top_groups = moe.groups_per_token,
                         .score = moe.softmax ? kernels::RouterScore::kSoftmax : kernels::RouterScore::kSigmoid,
                         .renormalize = moe.normalise,
                         .scale = moe.scaling};
    moe_shape_.expert_features = moe.latent != 0 ? moe.latent : config_.hidden;
    moe_shape_.intermediate = moe.intermediate;
    moe_shape_.shared_intermediate = moe.intermediate * moe.shared_experts;
    moe_shape_.norm_eps = config_.rms_epsilon;
  }
  if (!config_.kda) return;
  const KdaConfig& kda = *config_.kda;
  const parallel::Share heads = share_.heads(kda.heads);
  kda_shape_ = {.heads = {.heads = static_cast<int>(heads.count()),
                          .key_dim = kda.head_dim,
                          .value_dim = kda.head_dim,
                          .conv_width = kda.conv_width},
                .total_heads = kda.heads,
                .first_head = static_cast<int>(heads.begin),
                .decay = kda.gate_lower_bound ? kernels::KdaDecay::kBoundedSigmoid : kernels::KdaDecay::kSoftplus,
                .lower_bound = kda.gate_lower_bound.value_or(0),
                .norm_eps = config_.rms_epsilon,
                .unit_eps = kda.unit_epsilon,
                .decay_rank = kda.head_dim,
                .gate_rank = kda.full_rank_gate ? 0 : kda.head_dim};
}

CacheNeeds DeepseekModel::cache_needs() const {
  CacheNeeds needs;
  const parallel::Share stage = share_.layers();
  int entries = 0, states = 0;  // of the whole model
  const auto page = [&](bool own, const kernels::PagedEntry& entry) {
    if (own) {
      needs.paged.push_back(entry);
      needs.parts.push_back({.index = entries});
    }
    ++entries;
  };
  for (int64_t i = 0; i < std::ssize(config_.layers); ++i) {
    const DeepseekLayer& layer = config_.layers[static_cast<size_t>(i)];
    const bool own = stage.contains(i);
    if (layer.kda) {
      if (own) {
        ++needs.state_layers;
        needs.state_parts.push_back(
            {.index = states, .first_head = kda_shape_.first_head, .total_heads = kda_shape_.total_heads});
      }
      ++states;
      continue;
    }
    page(own, {.kind = kernels::PagedKind::kLatent, .dim = config_.mla.kv_lora_rank, .rope_dim = config_.mla.rope_dim});
    if (layer.indexer == IndexerRole::kOwn) {
      page(own, {.kind = kernels::PagedKind::kIndexKeys, .dim = config_.indexer->stored_dim()});
    }
  }
  if (needs.state_layers > 0) {
    needs.state_heads = kda_shape_.heads.heads;
    needs.state_head_bytes = kda_shape_.state_head_bytes();
  }
  return needs;
}

Result<void> DeepseekModel::prepare(int max_rows, int max_logit_rows, int threads) {
  if (max_rows < 1 || max_logit_rows < 1 || threads < 1) {
    return fail(Code::kInvalidArgument, "a step needs at least one row, one logit row and one thread; got {}, {}, {}",
                max_rows, max_logit_rows, threads);
  }
  auto scratch = std::make_unique<Scratch>();
  scratch->max_rows = max_rows;
  scratch->max_logit_rows = max_logit_rows;
  scratch->threads = threads;
  parallel::Group group = share_.group();
  const auto bytes = [&](int64_t rows) { return static_cast<size_t>(rows * config_.hidden) * sizeof(float); };
  const int64_t own_rows = TeamStep::mine_max(group, max_rows);
  BATON_TRY_ASSIGN(scratch->residual, tensor::Buffer::allocate(bytes(own_rows)));
  if (config_.residual_block != 0) {
    BATON_TRY_ASSIGN(scratch->mixed, tensor::Buffer::allocate(bytes(own_rows)));
  }
  BATON_TRY_ASSIGN(scratch->delta, group.share(bytes(max_rows)));
  BATON_TRY_ASSIGN(scratch->normed, TeamRows::allocate(group, max_rows, config_.hidden));
  BATON_TRY_ASSIGN(scratch->logit_rows, TeamRows::allocate(group, max_logit_rows, config_.hidden));
  BATON_TRY(prepare_layers(*scratch));
  BATON_TRY_ASSIGN(rope_, team_rope_table(group, config_.rope, config_.max_positions));
  scratch_ = std::move(scratch);
  return {};
}

Result<void> DeepseekModel::prepare_layers(Scratch& scratch) const {
  const int64_t rows = scratch.max_rows;
  const parallel::Group& group = share_.group();
  const auto has = [&](const auto& part) {
    return std::ranges::any_of(layers_, [&](const Layer& layer) { return (layer.*part).has_value(); });
  };
  int64_t widest = std::max(config_.hidden, config_.intermediate);
  if (has(&Layer::kda)) {
    widest = std::max({widest, kda_shape_.total_values(), kda_shape_.decay_rank, kda_shape_.gate_rank});
    BATON_TRY_ASSIGN(scratch.kda, KdaScratch::allocate(kda_shape_, rows, group));
  }
  if (has(&Layer::moe)) {
    widest = std::max({widest, moe_shape_.shared_intermediate, moe_shape_.expert_features});
    BATON_TRY_ASSIGN(scratch.moe, MoeScratch::allocate(moe_shape_, rows, MoeScratch::kPassRows, group,
                                                       {.place = share_.place(), .exchange = share_.replicas()}));
  }
  if (has(&Layer::mla)) {
    BATON_TRY_ASSIGN(scratch.mla, MlaScratch::allocate(config_.mla, share_.heads(config_.mla.heads).count(), rows,
                                                       scratch.threads, group, share_.place()));
  }
  if (has(&Layer::mlp)) {
    BATON_TRY_ASSIGN(scratch.mlp, MlpScratch::allocate(rows, config_.intermediate, group));
  }
  if (config_.indexer) {
    BATON_TRY_ASSIGN(scratch.selection, IndexSelection::allocate(*config_.indexer, rows, config_.max_positions,
                                                                 scratch.threads, group, share_.place()));
  }
  if (config_.residual_block != 0) {
    const int blocks = banked_blocks(share_.layers().end);
    BATON_TRY_ASSIGN(scratch.bank, AttnResBank::allocate(TeamStep::mine_max(group, rows), blocks, config_.hidden));
  }
  BATON_TRY_ASSIGN(scratch.input,
                   QuantizedInput::allocate(std::max(scratch.max_rows, scratch.max_logit_rows), widest, group));
  return {};
}

void DeepseekModel::check_batch(const ForwardBatch& batch, const ComputePool& pool) const {
  BATON_CHECK(scratch_ != nullptr && std::ssize(batch.tokens) <= scratch_->max_rows &&
                  batch.positions.size() == batch.tokens.size() &&
                  std::ssize(batch.logit_rows) <= scratch_->max_logit_rows && pool.threads() <= scratch_->threads,
              "rows={} positions={} logit_rows={} threads={}", batch.tokens.size(), batch.positions.size(),
              batch.logit_rows.size(), pool.threads());
  BATON_CHECK(batch.tokens.empty() || ((share_.first_stage() || batch.stage_in != nullptr) &&
                                       (share_.last_stage() || batch.stage_out != nullptr)),
              "stage {} without its ends", share_.place().stage);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    BATON_CHECK(batch.tokens[i] >= 0 && batch.tokens[i] < config_.vocab, "token {}", batch.tokens[i]);
    BATON_CHECK(batch.positions[i] >= 0 && batch.positions[i] < config_.max_positions, "position {}",
                batch.positions[i]);
  }
}

void DeepseekModel::forward(const ForwardBatch& batch, float* logits, ComputePool& pool) {
  check_batch(batch, pool);
  Step step{.batch = batch,
            .pool = pool,
            .scratch = *scratch_,
            .team = TeamStep(share_.group(), std::ssize(batch.tokens)),
            .residual = scratch_->residual.as<float>()};
  step.mine = step.team.mine();
  if (step.team.rows() == 0) return serve_replicas(step);
  enter_stage(step);
  int entries = 0;
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    run_layer(i, step);
    const DeepseekLayer& layer = config_.layers[static_cast<size_t>(share_.layers().begin + i)];
    if (!layer.kda) batch.entries_ready(entries += layer.indexer == IndexerRole::kOwn ? 2 : 1);
    tap(share_.layers().begin + i, step);
  }
  leave_stage(step, logits);
  step.team.gathered();
}

// A step without rows: what the other replicas ask of this one's experts.
void DeepseekModel::serve_replicas(Step& step) {
  if (!config_.moe || !share_.spans_replicas()) return;
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    if (layers_[i].moe) feed_forward(i, step, step.scratch.delta->as<float>());
  }
}

void DeepseekModel::run_layer(int index, Step& step) {
  Layer& layer = layers_[index];
  Scratch& scratch = step.scratch;
  float* delta = scratch.delta->as<float>();
  step.in_bank = scratch.bank && (share_.layers().begin + index) % config_.residual_block == 0;
  if (step.in_bank) scratch.bank->append(step.residual, step.pool);
  set_input(layer.attention_residual, layer.attention_norm, step);
  attention(index, step, delta);
  if (step.in_bank) {
    std::copy_n(delta + step.mine.begin * config_.hidden, step.mine.count() * config_.hidden, step.residual);
  } else {
    add_to_residual(step);
  }
  step.in_bank = false;
  set_input(layer.ffn_residual, layer.ffn_norm, step);
  feed_forward(index, step, delta);
  add_to_residual(step);
}

void DeepseekModel::add_to_residual(Step& step) const {
  kernels::add(step.scratch.delta->as<float>() + step.mine.begin * config_.hidden, config_.hidden, step.residual,
               config_.hidden, step.mine.count(), config_.hidden, isa_, step.pool);
}

const float* DeepseekModel::mixed(const std::optional<AttnResWeights>& mix, Step& step) const {
  if (!mix) return step.residual;
  float* mixed = step.scratch.mixed.as<float>();
  step.scratch.bank->mix(*mix, step.in_bank ? nullptr : step.residual, config_.rms_epsilon, mixed, isa_, step.pool);
  return mixed;
}

// What a block reads: the residual stream, or a mix of it with the bank; normed, and set as the input of its matrices.
void DeepseekModel::set_input(const std::optional<AttnResWeights>& mix, const std::vector<float>& norm,
                              Step& step) const {
  Scratch& scratch = step.scratch;
  float* normed = scratch.normed.made(step.team);
  kernels::rms_norm(mixed(mix, step), config_.hidden, norm.data(), config_.rms_epsilon,
                    normed + step.mine.begin * config_.hidden, config_.hidden, step.mine.count(), config_.hidden, isa_,
                    step.pool);
  // Each rank quantises the rows that it made.
  scratch.input.set(normed, step.team.rows(), config_.hidden, &step.team);
}

void DeepseekModel::attention(int index, Step& step, float* out) {
  const Layer& layer = layers_[index];
  const kernels::CacheView& cache = step.batch.cache;
  Scratch& scratch = step.scratch;
  if (layer.kda) {
    return kda_forward(
        *layer.kda,
        {.shape = kda_shape_, .slices = step.batch.slices, .state = cache.state(layer.state_layer), .isa = isa_},
        step.team, *scratch.kda, scratch.input, out, config_.hidden, step.pool);
  }
  const IndexerRole role = config_.layers[static_cast<size_t>(share_.layers().begin + index)].indexer;
  MlaStep mla{.config = config_.mla,
              .heads = share_.heads(config_.mla.heads),
              .positions = step.batch.positions.data(),
              .cos_sin = rope_ ? rope_->as<float>() : nullptr,
              .slices = step.batch.slices,
              .cache = cache.tokens(layer.latent_entry),
              .indexer_role = role,
              .place = share_.place(),
              .isa = isa_};
  if (role != IndexerRole::kNone) mla.selection = &*scratch.selection;
  if (role == IndexerRole::kOwn) {
    mla.indexer = &*layer.indexer;
    mla.indexer_config = &*config_.indexer;
    mla.index_cache = cache.tokens(layer.index_entry);
  }
  mla_forward(*layer.mla, mla, step.team, *scratch.mla, scratch.input, out, config_.hidden, step.pool);
}

void DeepseekModel::feed_forward(int index, Step& step, float* out) {
  const Layer& layer = layers_[index];
  Scratch& scratch = step.scratch;
  if (layer.moe) {
    return moe_forward(*layer.moe, {.shape = moe_shape_, .x = scratch.normed.made(step.team), .isa = isa_}, step.team,
                       *scratch.moe, scratch.input, out, step.pool);
  }
  mlp_forward(*layer.mlp, step.team, *scratch.mlp, scratch.input, out, config_.hidden, isa_, step.pool,
              moe_shape_.activation);
}

}  // namespace baton::models
