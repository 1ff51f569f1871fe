#include "models/llama/llama_model.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise.h"

namespace baton::models {

CacheNeeds LlamaModel::cache_needs() const {
  const kernels::PagedEntry layer = {
      .kind = kernels::PagedKind::kKeysValues, .heads = config_.attention.kv_heads, .dim = config_.attention.head_dim};
  return {.paged = std::vector(static_cast<size_t>(config_.layers), layer)};
}

Result<void> LlamaModel::prepare(int max_rows, int max_logit_rows, int threads) {
  if (max_rows < 1 || max_logit_rows < 1 || threads < 1) {
    return fail(Code::kInvalidArgument, "a step needs at least one row, one logit row and one thread; got {}, {}, {}",
                max_rows, max_logit_rows, threads);
  }
  Scratch scratch{.max_rows = max_rows, .max_logit_rows = max_logit_rows, .threads = threads};
  const auto row_bytes = static_cast<size_t>(config_.hidden) * sizeof(float);
  BATON_TRY_ASSIGN(scratch.residual, tensor::Buffer::allocate(max_rows * row_bytes));
  BATON_TRY_ASSIGN(scratch.normed, tensor::Buffer::allocate(max_rows * row_bytes));
  BATON_TRY_ASSIGN(scratch.delta, tensor::Buffer::allocate(max_rows * row_bytes));
  BATON_TRY_ASSIGN(scratch.logit_rows, tensor::Buffer::allocate(max_logit_rows * row_bytes));
  const int64_t widest = std::max({config_.hidden, config_.intermediate, config_.attention.q_features()});
  BATON_TRY_ASSIGN(scratch.input, QuantizedInput::allocate(std::max(max_rows, max_logit_rows), widest));
  BATON_TRY_ASSIGN(scratch.attention, GqaScratch::allocate(config_.attention, max_rows, threads));
  BATON_TRY_ASSIGN(scratch.mlp, MlpScratch::allocate(max_rows, config_.intermediate));
  scratch_ = std::move(scratch);
  return {};
}

void LlamaModel::check_batch(const ForwardBatch& batch, const ComputePool& pool) const {
  BATON_CHECK(std::ssize(batch.tokens) <= scratch_.max_rows && batch.positions.size() == batch.tokens.size() &&
                  std::ssize(batch.logit_rows) <= scratch_.max_logit_rows && pool.threads() <= scratch_.threads,
              "rows={} positions={} logit_rows={} threads={} prepared for {} {} {}", batch.tokens.size(),
              batch.positions.size(), batch.logit_rows.size(), pool.threads(), scratch_.max_rows,
              scratch_.max_logit_rows, scratch_.threads);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    BATON_CHECK(batch.tokens[i] >= 0 && batch.tokens[i] < config_.vocab, "token {}", batch.tokens[i]);
    BATON_CHECK(batch.positions[i] >= 0 && batch.positions[i] < config_.max_positions, "position {}",
                batch.positions[i]);
  }
}

void LlamaModel::embed(std::span<const int32_t> tokens, float* out, ComputePool& pool) const {
  pool.parallel_for(std::ssize(tokens), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernels::unpack_row(embedding(), tokens[i], out + i * config_.hidden);
  });
}

void LlamaModel::forward(const ForwardBatch& batch, float* logits, ComputePool& pool) {
  check_batch(batch, pool);
  const int64_t rows = std::ssize(batch.tokens);
  if (rows == 0) return;
  float* residual = scratch_.residual.as<float>();
  float* normed = scratch_.normed.as<float>();
  float* delta = scratch_.delta.as<float>();
  const auto add_norm = [&](const std::vector<float>& weight) {
    kernels::add_rms_norm(residual, delta, weight.data(), config_.rms_epsilon, normed, rows, config_.hidden, isa_,
                          pool);
    scratch_.input.set(normed, rows, config_.hidden);
  };

  embed(batch.tokens, residual, pool);
  kernels::rms_norm(residual, config_.hidden, layers_[0].attention_norm.data(), config_.rms_epsilon, normed,
                    config_.hidden, rows, config_.hidden, isa_, pool);
  scratch_.input.set(normed, rows, config_.hidden);
  for (int i = 0; i < config_.layers; ++i) {
    const Layer& layer = layers_[i];
    gqa_forward(layer.attention,
                {.shape = config_.attention,
                 .rows = rows,
                 .positions = batch.positions.data(),
                 .cos_sin = rope_.data(),
                 .slices = batch.slices,
                 .cache = batch.cache.keys_values(i),
                 .isa = isa_},
                scratch_.attention, scratch_.input, delta, pool);
    batch.entries_ready(i + 1);
    add_norm(layer.mlp_norm);
    mlp_forward(layer.mlp, rows, scratch_.mlp, scratch_.input, delta, isa_, pool);
    add_norm(i + 1 < config_.layers ? layers_[i + 1].attention_norm : final_norm_);
  }
  write_logits(batch.logit_rows, logits, pool);
}

void LlamaModel::write_logits(std::span<const int32_t> rows, float* logits, ComputePool& pool) {
  if (rows.empty()) return;
  float* wanted = scratch_.logit_rows.as<float>();
  const float* normed = scratch_.normed.as<float>();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(normed + rows[i] * config_.hidden, config_.hidden, wanted + static_cast<int64_t>(i) * config_.hidden);
  }
  scratch_.input.set(wanted, std::ssize(rows), config_.hidden);
  const kernels::MatmulSpec& spec = lm_head_.spec();
  kernels::matmul(lm_head_, scratch_.input.as(kernels::activation_format(spec.dtype), isa_, pool), nullptr, logits,
                  config_.vocab, pool);
}

}  // namespace baton::models
