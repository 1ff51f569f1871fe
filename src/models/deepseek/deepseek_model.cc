#include "models/deepseek/deepseek_model.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise.h"

namespace baton::models {

struct DeepseekModel::Scratch {
  int max_rows = 0, max_logit_rows = 0, threads = 0;
  tensor::Buffer residual, normed, mixed, delta, logit_rows;  // [rows, hidden]
  QuantizedInput input;
  MlpScratch mlp;
  std::optional<MlaScratch> mla;
  std::optional<KdaScratch> kda;
  std::optional<MoeScratch> moe;
  std::optional<IndexSelection> selection;
  std::optional<AttnResBank> bank;
};

// One forward pass.
struct DeepseekModel::Step {
  const ForwardBatch& batch;
  ComputePool& pool;
  Scratch& scratch;
  int64_t rows = 0;
  float* residual = nullptr;  // the running sum; with attention residuals, since the last block border
  bool in_bank = false;       // the running sum has just been moved into the bank
};

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
  kda_shape_ = {
      .heads = {.heads = kda.heads, .key_dim = kda.head_dim, .value_dim = kda.head_dim, .conv_width = kda.conv_width},
      .decay = kda.gate_lower_bound ? kernels::KdaDecay::kBoundedSigmoid : kernels::KdaDecay::kSoftplus,
      .lower_bound = kda.gate_lower_bound.value_or(0),
      .norm_eps = config_.rms_epsilon,
      .unit_eps = kda.unit_epsilon,
      .decay_rank = kda.head_dim,
      .gate_rank = kda.full_rank_gate ? 0 : kda.head_dim};
}

CacheNeeds DeepseekModel::cache_needs() const {
  CacheNeeds needs;
  for (const DeepseekLayer& layer : config_.layers) {
    if (layer.kda) {
      ++needs.state_layers;
      continue;
    }
    needs.paged.push_back(
        {.kind = kernels::PagedKind::kLatent, .dim = config_.mla.kv_lora_rank, .rope_dim = config_.mla.rope_dim});
    if (layer.indexer == IndexerRole::kOwn) {
      needs.paged.push_back({.kind = kernels::PagedKind::kIndexKeys, .dim = config_.indexer->stored_dim()});
    }
  }
  if (config_.kda) {
    needs.state_heads = config_.kda->heads;
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
  const auto row_bytes = static_cast<size_t>(config_.hidden) * sizeof(float);
  for (tensor::Buffer* buffer : {&scratch->residual, &scratch->normed, &scratch->mixed, &scratch->delta}) {
    BATON_TRY_ASSIGN(*buffer, tensor::Buffer::allocate(max_rows * row_bytes));
  }
  BATON_TRY_ASSIGN(scratch->logit_rows, tensor::Buffer::allocate(max_logit_rows * row_bytes));
  BATON_TRY(prepare_layers(*scratch));
  scratch_ = std::move(scratch);
  return {};
}

Result<void> DeepseekModel::prepare_layers(Scratch& scratch) const {
  const int64_t rows = scratch.max_rows;
  int64_t widest = std::max(config_.hidden, config_.intermediate);
  if (config_.kda) {
    widest = std::max(widest, kda_shape_.heads.value_features());
    BATON_TRY_ASSIGN(scratch.kda, KdaScratch::allocate(kda_shape_, rows));
  }
  if (config_.moe) {
    widest = std::max({widest, moe_shape_.shared_intermediate, moe_shape_.expert_features});
    BATON_TRY_ASSIGN(scratch.moe, MoeScratch::allocate(moe_shape_, rows));
  }
  if (std::ranges::any_of(config_.layers, [](const DeepseekLayer& layer) { return !layer.kda; })) {
    BATON_TRY_ASSIGN(scratch.mla, MlaScratch::allocate(config_.mla, rows, scratch.threads));
  }
  if (config_.indexer) {
    BATON_TRY_ASSIGN(scratch.selection,
                     IndexSelection::allocate(*config_.indexer, rows, config_.max_positions, scratch.threads));
  }
  if (config_.residual_block != 0) {
    const int blocks = (static_cast<int>(config_.layers.size()) + config_.residual_block - 1) / config_.residual_block;
    BATON_TRY_ASSIGN(scratch.bank, AttnResBank::allocate(rows, blocks, config_.hidden));
  }
  BATON_TRY_ASSIGN(scratch.mlp, MlpScratch::allocate(rows, config_.intermediate));
  BATON_TRY_ASSIGN(scratch.input, QuantizedInput::allocate(std::max(scratch.max_rows, scratch.max_logit_rows), widest));
  return {};
}

void DeepseekModel::check_batch(const ForwardBatch& batch, const ComputePool& pool) const {
  BATON_CHECK(scratch_ != nullptr && std::ssize(batch.tokens) <= scratch_->max_rows &&
                  batch.positions.size() == batch.tokens.size() &&
                  std::ssize(batch.logit_rows) <= scratch_->max_logit_rows && pool.threads() <= scratch_->threads,
              "rows={} positions={} logit_rows={} threads={}", batch.tokens.size(), batch.positions.size(),
              batch.logit_rows.size(), pool.threads());
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    BATON_CHECK(batch.tokens[i] >= 0 && batch.tokens[i] < config_.vocab, "token {}", batch.tokens[i]);
    BATON_CHECK(batch.positions[i] >= 0 && batch.positions[i] < config_.max_positions, "position {}",
                batch.positions[i]);
  }
}

void DeepseekModel::embed(std::span<const int32_t> tokens, float* out, ComputePool& pool) const {
  const kernels::PackedMatrix& table = embedding_ ? *embedding_ : lm_head_;
  pool.parallel_for(std::ssize(tokens), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernels::unpack_row(table, tokens[i], out + i * config_.hidden);
  });
}

void DeepseekModel::forward(const ForwardBatch& batch, float* logits, ComputePool& pool) {
  check_batch(batch, pool);
  Step step{.batch = batch, .pool = pool, .scratch = *scratch_, .rows = std::ssize(batch.tokens)};
  if (step.rows == 0) return;
  step.residual = scratch_->residual.as<float>();
  embed(batch.tokens, step.residual, pool);
  if (scratch_->bank) scratch_->bank->begin(step.rows);
  int entries = 0;
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    run_layer(i, step);
    const DeepseekLayer& layer = config_.layers[i];
    if (!layer.kda) batch.entries_ready(entries += layer.indexer == IndexerRole::kOwn ? 2 : 1);
    if (!batch.taps.empty() && batch.taps[i] != nullptr) {
      std::copy_n(step.residual, step.rows * config_.hidden, batch.taps[i]);
    }
  }
  set_input(final_residual_, final_norm_, step);
  write_logits(batch.logit_rows, logits, pool);
}

void DeepseekModel::run_layer(int index, Step& step) {
  Layer& layer = layers_[index];
  float* delta = step.scratch.delta.as<float>();
  step.in_bank = step.scratch.bank && index % config_.residual_block == 0;
  if (step.in_bank) step.scratch.bank->append(step.residual, step.pool);
  set_input(layer.attention_residual, layer.attention_norm, step);
  attention(index, step, step.in_bank ? step.residual : delta);
  if (!step.in_bank) add_to_residual(step);
  step.in_bank = false;
  set_input(layer.ffn_residual, layer.ffn_norm, step);
  feed_forward(index, step, delta);
  add_to_residual(step);
}

void DeepseekModel::add_to_residual(Step& step) const {
  kernels::add(step.scratch.delta.as<float>(), config_.hidden, step.residual, config_.hidden, step.rows, config_.hidden,
               isa_, step.pool);
}

// What a block reads: the residual stream, or a mix of it with the bank; normed, and set as the input of its matrices.
void DeepseekModel::set_input(const std::optional<AttnResWeights>& mix, const std::vector<float>& norm,
                              Step& step) const {
  Scratch& scratch = step.scratch;
  const float* source = step.residual;
  if (mix) {
    float* mixed = scratch.mixed.as<float>();
    scratch.bank->mix(*mix, step.in_bank ? nullptr : step.residual, config_.rms_epsilon, mixed, isa_, step.pool);
    source = mixed;
  }
  float* normed = scratch.normed.as<float>();
  kernels::rms_norm(source, config_.hidden, norm.data(), config_.rms_epsilon, normed, config_.hidden, step.rows,
                    config_.hidden, isa_, step.pool);
  scratch.input.set(normed, step.rows, config_.hidden);
}

void DeepseekModel::attention(int index, Step& step, float* out) {
  const Layer& layer = layers_[index];
  const kernels::CacheView& cache = step.batch.cache;
  Scratch& scratch = step.scratch;
  if (layer.kda) {
    return kda_forward(*layer.kda,
                       {.shape = kda_shape_,
                        .rows = step.rows,
                        .slices = step.batch.slices,
                        .state = cache.state(layer.state_layer),
                        .isa = isa_},
                       *scratch.kda, scratch.input, out, step.pool);
  }
  const IndexerRole role = config_.layers[index].indexer;
  MlaStep mla{.config = config_.mla,
              .rows = step.rows,
              .positions = step.batch.positions.data(),
              .cos_sin = rope_.data(),
              .slices = step.batch.slices,
              .cache = cache.tokens(layer.latent_entry),
              .indexer_role = role,
              .isa = isa_};
  if (role != IndexerRole::kNone) mla.selection = &*scratch.selection;
  if (role == IndexerRole::kOwn) {
    mla.indexer = &*layer.indexer;
    mla.indexer_config = &*config_.indexer;
    mla.index_cache = cache.tokens(layer.index_entry);
  }
  mla_forward(*layer.mla, mla, *scratch.mla, scratch.input, out, step.pool);
}

void DeepseekModel::feed_forward(int index, Step& step, float* out) {
  const Layer& layer = layers_[index];
  Scratch& scratch = step.scratch;
  if (layer.moe) {
    return moe_forward(*layer.moe,
                       {.shape = moe_shape_, .rows = step.rows, .x = scratch.normed.as<float>(), .isa = isa_},
                       *scratch.moe, scratch.input, out, step.pool);
  }
  mlp_forward(*layer.mlp, step.rows, scratch.mlp, scratch.input, out, isa_, step.pool, moe_shape_.activation);
}

void DeepseekModel::write_logits(std::span<const int32_t> rows, float* logits, ComputePool& pool) {
  if (rows.empty()) return;
  float* wanted = scratch_->logit_rows.as<float>();
  const float* normed = scratch_->normed.as<float>();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(normed + rows[i] * config_.hidden, config_.hidden, wanted + static_cast<int64_t>(i) * config_.hidden);
  }
  scratch_->input.set(wanted, std::ssize(rows), config_.hidden);
  const kernels::MatmulSpec& spec = lm_head_.spec();
  kernels::matmul(lm_head_,
                  scratch_->input.as(kernels::activation_format(spec.dtype), isa_, pool, lm_head_.static_quant()),
                  nullptr, logits, config_.vocab, pool);
}

}  // namespace baton::models
