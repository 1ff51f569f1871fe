#include "models/layers/indexer.h"

#include "kernels/elementwise.h"
#include "kernels/indexer.h"
#include "kernels/latent_cache.h"

namespace baton::models {
namespace {

// What DeepSeek V3.2's own code sets for the indexer's key norm, of either kind.
constexpr float kKeyNormEpsilon = 1e-6f;

// k: rows of stored_dim.
void norm_keys(const IndexerWeights& weights, const IndexerStep& step, float* k, ComputePool& pool) {
  const int64_t dim = step.config.dim, stride = step.config.stored_dim();
  switch (step.config.key_norm) {
    case IndexKeyNorm::kLayer:
      return kernels::layer_norm(k, stride, weights.k_norm.data(), weights.k_norm_bias.data(), kKeyNormEpsilon, k,
                                 stride, step.rows, dim, step.isa, pool);
    case IndexKeyNorm::kRms:
      return kernels::rms_norm(k, stride, weights.k_norm.data(), kKeyNormEpsilon, k, stride, step.rows, dim, step.isa,
                               pool);
    case IndexKeyNorm::kNone:
      return;
  }
}

}  // namespace

Result<IndexSelection> IndexSelection::allocate(const IndexerConfig& config, int64_t max_rows, int64_t max_positions,
                                                int threads) {
  IndexSelection selection;
  selection.stride_ = config.top_k + config.pool - 1;
  selection.max_positions_ = max_positions;
  const auto floats = [&](int64_t features) { return static_cast<size_t>(max_rows * features) * sizeof(float); };
  BATON_TRY_ASSIGN(selection.positions_, tensor::Buffer::allocate(floats(selection.stride_)));
  BATON_TRY_ASSIGN(selection.counts_, tensor::Buffer::allocate(floats(1)));
  BATON_TRY_ASSIGN(selection.q_, tensor::Buffer::allocate(floats(int64_t{config.heads} * config.dim)));
  BATON_TRY_ASSIGN(selection.k_, tensor::Buffer::allocate(floats(config.stored_dim())));
  BATON_TRY_ASSIGN(selection.weights_, tensor::Buffer::allocate(floats(config.heads)));
  BATON_TRY_ASSIGN(selection.scratch_, tensor::Buffer::allocate(kernels::index_select_scratch_bytes(
                                           config.stored_dim(), max_positions, threads)));
  return selection;
}

void run_indexer(const IndexerWeights& weights, const IndexerStep& step, IndexSelection& selection, QuantizedInput& x,
                 QuantizedInput& cq, ComputePool& pool) {
  const IndexerConfig& config = step.config;
  const int64_t q_features = int64_t{config.heads} * config.dim;
  float* q = selection.q_.as<float>();
  float* k = selection.k_.as<float>();
  float* head_weights = selection.weights_.as<float>();
  const int64_t k_stride = config.stored_dim();
  weights.k.apply(x, k, k_stride, pool);
  if (weights.pool_gate) weights.pool_gate->apply(x, k + config.dim, k_stride, pool);
  weights.head_weights.apply(x, head_weights, config.heads, pool);
  weights.q_b.apply(cq, q, q_features, pool);
  norm_keys(weights, step, k, pool);
  if (config.rope_dim != 0) {
    kernels::apply_rope(q, q_features, config.heads, config.dim, config.rope_dim, step.positions, step.cos_sin,
                        config.pairing, step.rows, step.isa, pool);
    kernels::apply_rope(k, k_stride, 1, config.dim, config.rope_dim, step.positions, step.cos_sin, config.pairing,
                        step.rows, step.isa, pool);
  }
  // The factor heads^-0.5 dim^-0.5 is above 0 and the same for all: it changes no selection, so it is left out.
  kernels::write_index_keys(step.cache, step.slices, k, k_stride, step.isa, pool);
  kernels::index_select({.indexer = {.cache = step.cache,
                                     .heads = config.heads,
                                     .q = q,
                                     .q_stride = q_features,
                                     .weights = head_weights,
                                     .weights_stride = config.heads,
                                     .pool = config.pool,
                                     .pool_bias = config.pool > 1 ? weights.pool_bias.data() : nullptr,
                                     .isa = step.isa},
                         .top_k = config.top_k,
                         .selected = selection.positions_.as<int32_t>(),
                         .selected_stride = selection.stride_,
                         .selected_count = selection.counts_.as<int32_t>()},
                        step.slices, selection.max_positions_, {selection.scratch_.data(), selection.scratch_.size()},
                        pool);
}

}  // namespace baton::models
