#include "models/layers/gqa.h"

#include <cmath>

#include "kernels/attention.h"

namespace baton::models {

Result<GqaScratch> GqaScratch::allocate(const GqaShape& shape, int64_t max_rows, int threads) {
  GqaScratch scratch;
  const auto bytes = [&](int64_t features) { return static_cast<size_t>(max_rows * features) * sizeof(float); };
  BATON_TRY_ASSIGN(scratch.qkv_, tensor::Buffer::allocate(bytes(shape.q_features() + 2 * shape.kv_features())));
  BATON_TRY_ASSIGN(scratch.heads_out_, tensor::Buffer::allocate(bytes(shape.q_features())));
  BATON_TRY_ASSIGN(scratch.attention_, tensor::Buffer::allocate(kernels::attention_scratch_bytes(
                                           shape.heads, shape.kv_heads, shape.head_dim, threads)));
  return scratch;
}

void gqa_forward(const GqaWeights& weights, const GqaStep& step, GqaScratch& scratch, QuantizedInput& input, float* y,
                 ComputePool& pool) {
  const GqaShape& shape = step.shape;
  const int64_t stride = shape.q_features() + 2 * shape.kv_features();
  float* q = scratch.qkv();
  float* k = q + shape.q_features();
  float* v = k + shape.kv_features();
  weights.q.apply(input, q, stride, pool);
  weights.k.apply(input, k, stride, pool);
  weights.v.apply(input, v, stride, pool);
  // q and k lie side by side: one pass over the heads of both.
  kernels::apply_rope(q, stride, shape.heads + shape.kv_heads, shape.head_dim, shape.rope_dim, step.positions,
                      step.cos_sin, shape.pairing, step.rows, step.isa, pool);
  kernels::write_kv(step.cache, 0, step.slices, k, stride, v, stride, step.isa, pool);
  kernels::paged_attention({.cache = step.cache,
                            .heads = shape.heads,
                            .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                            .q = q,
                            .q_stride = stride,
                            .out = scratch.heads_out(),
                            .out_stride = shape.q_features(),
                            .isa = step.isa},
                           step.slices, scratch.attention(), pool);
  input.set(scratch.heads_out(), step.rows, shape.q_features());
  weights.o.apply(input, y, weights.o.out_features(), pool);
}

}  // namespace baton::models
