#include "models/layers/mla.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/gated.h"
#include "kernels/latent_attention.h"
#include "kernels/latent_cache.h"

namespace baton::models {

Result<MlaScratch> MlaScratch::allocate(const MlaConfig& config, int64_t max_rows, int threads) {
  MlaScratch scratch;
  const auto floats = [&](int64_t features) { return static_cast<size_t>(max_rows * features) * sizeof(float); };
  const int64_t heads = config.heads, rank = config.kv_lora_rank;
  const int64_t widest = std::max<int64_t>(config.q_lora_rank, heads * config.value_dim);
  BATON_TRY_ASSIGN(scratch.inner_, QuantizedInput::allocate(max_rows, widest));
  BATON_TRY_ASSIGN(scratch.cq_, tensor::Buffer::allocate(floats(std::max(1, config.q_lora_rank))));
  BATON_TRY_ASSIGN(scratch.heads_,
                   kernels::ActivationBuffer::allocate(max_rows * heads, std::max<int64_t>(rank, config.nope_dim)));
  BATON_TRY_ASSIGN(scratch.q_, tensor::Buffer::allocate(floats(heads * config.query_dim())));
  BATON_TRY_ASSIGN(scratch.nope_, tensor::Buffer::allocate(floats(heads * config.nope_dim)));
  BATON_TRY_ASSIGN(scratch.kv_, tensor::Buffer::allocate(floats(rank + config.rope_dim)));
  BATON_TRY_ASSIGN(scratch.absorbed_, tensor::Buffer::allocate(floats(heads * (rank + config.rope_dim))));
  BATON_TRY_ASSIGN(scratch.latents_, tensor::Buffer::allocate(floats(heads * rank)));
  BATON_TRY_ASSIGN(scratch.heads_out_, tensor::Buffer::allocate(floats(heads * config.value_dim)));
  if (config.output_gate) {
    BATON_TRY_ASSIGN(scratch.gate_, tensor::Buffer::allocate(floats(heads * config.value_dim)));
  }
  BATON_TRY_ASSIGN(scratch.attention_, tensor::Buffer::allocate(kernels::latent_attention_scratch_bytes(
                                           config.heads, rank, config.rope_dim, threads)));
  return scratch;
}

namespace {

// from: [rows, heads, from_stride], to: [rows, heads, to_stride]: `count` elements of each head.
void copy_heads(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t heads,
                int64_t count, ComputePool& pool) {
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * heads; i < end * heads; ++i)
      std::copy_n(from + i * from_stride, count, to + i * to_stride);
  });
}

}  // namespace

// Queries of all heads, [rows, heads, nope | rope], rotated.
void MlaScratch::make_queries(const MlaWeights& weights, const MlaStep& step, QuantizedInput& input,
                              ComputePool& pool) {
  const MlaConfig& config = step.config;
  const int64_t features = int64_t{config.heads} * config.query_dim();
  float* q = q_.as<float>();
  if (weights.q_a) {
    float* cq = cq_.as<float>();
    const int64_t rank = config.q_lora_rank;
    weights.q_a->apply(input, cq, rank, pool);
    kernels::rms_norm(cq, rank, weights.q_a_norm.data(), config.lora_norm_epsilon, cq, rank, step.rows, rank, step.isa,
                      pool);
    inner_.set(cq, step.rows, rank);
  }
  weights.q_b.apply(weights.q_a ? inner_ : input, q, features, pool);
  if (!config.rotary) return;
  kernels::apply_rope(q + config.nope_dim, features, config.heads, config.query_dim(), config.rope_dim, step.positions,
                      step.cos_sin, config.pairing, step.rows, step.isa, pool);
}

// The step's latents and rotary keys, into the cache.
void MlaScratch::store_latents(const MlaWeights& weights, const MlaStep& step, QuantizedInput& input,
                               ComputePool& pool) {
  const MlaConfig& config = step.config;
  const int64_t rank = config.kv_lora_rank, width = rank + config.rope_dim;
  float* kv = kv_.as<float>();
  weights.kv_a.apply(input, kv, width, pool);
  kernels::rms_norm(kv, width, weights.kv_a_norm.data(), config.lora_norm_epsilon, kv, width, step.rows, rank, step.isa,
                    pool);
  if (config.rotary) {
    kernels::apply_rope(kv + rank, width, 1, config.rope_dim, config.rope_dim, step.positions, step.cos_sin,
                        config.pairing, step.rows, step.isa, pool);
  }
  kernels::write_latents(step.cache, step.slices, kv, width, kv + rank, width, step.isa, pool);
}

// Each head's queries over latents: W_UK^T q_nope beside the rotary part. [rows, heads, rank | rope]
void MlaScratch::absorb(const MlaWeights& weights, const MlaStep& step, ComputePool& pool) {
  const MlaConfig& config = step.config;
  const int64_t heads = config.heads, rank = config.kv_lora_rank, width = rank + config.rope_dim;
  const float* q = q_.as<float>();
  float* nope = nope_.as<float>();
  float* latents = latents_.as<float>();
  float* absorbed = absorbed_.as<float>();
  copy_heads(q, config.query_dim(), nope, config.nope_dim, step.rows, heads, config.nope_dim, pool);
  kernels::matmul_heads(weights.key_up, nope, heads * config.nope_dim, step.rows, latents, heads * rank, heads_, pool);
  copy_heads(latents, rank, absorbed, width, step.rows, heads, rank, pool);
  copy_heads(q + config.nope_dim, config.query_dim(), absorbed + rank, width, step.rows, heads, config.rope_dim, pool);
}

// Attention over the cache, each head's values and the output gate. [rows, heads, value]
void MlaScratch::attend(const MlaWeights& weights, const MlaStep& step, ComputePool& pool) {
  const MlaConfig& config = step.config;
  const int64_t heads = config.heads, rank = config.kv_lora_rank, features = heads * config.value_dim;
  const bool sparse = step.indexer_role != IndexerRole::kNone;
  kernels::latent_attention({.cache = step.cache,
                             .heads = config.heads,
                             .scale = config.scale,
                             .q = absorbed_.as<float>(),
                             .q_stride = heads * (rank + config.rope_dim),
                             .out = latents_.as<float>(),
                             .out_stride = heads * rank,
                             .selected = sparse ? step.selection->positions() : nullptr,
                             .selected_stride = sparse ? step.selection->stride() : 0,
                             .selected_count = sparse ? step.selection->counts() : nullptr,
                             .isa = step.isa},
                            step.slices, {attention_.data(), attention_.size()}, pool);
  kernels::matmul_heads(weights.value_up, latents_.as<float>(), heads * rank, step.rows, heads_out_.as<float>(),
                        features, heads_, pool);
  if (!weights.gate) return;
  kernels::sigmoid_mul(gate_.as<float>(), features, heads_out_.as<float>(), features, step.rows, features, step.isa,
                       pool);
}

void mla_forward(const MlaWeights& weights, const MlaStep& step, MlaScratch& scratch, QuantizedInput& input, float* y,
                 ComputePool& pool) {
  const int64_t features = int64_t{step.config.heads} * step.config.value_dim;
  // All that reads the layer's input first: it is quantised once.
  if (weights.gate) weights.gate->apply(input, scratch.gate_.as<float>(), features, pool);
  scratch.store_latents(weights, step, input, pool);
  scratch.make_queries(weights, step, input, pool);
  if (step.indexer_role == IndexerRole::kOwn) {
    run_indexer(*step.indexer,
                {.config = *step.indexer_config,
                 .rows = step.rows,
                 .positions = step.positions,
                 .cos_sin = step.cos_sin,
                 .slices = step.slices,
                 .cache = step.index_cache,
                 .isa = step.isa},
                *step.selection, input, scratch.inner_, pool);
  }
  scratch.absorb(weights, step, pool);
  scratch.attend(weights, step, pool);
  scratch.inner_.set(scratch.heads_out_.as<float>(), step.rows, features);
  weights.o.apply(scratch.inner_, y, weights.o.out_features(), pool);
}

}  // namespace baton::models
