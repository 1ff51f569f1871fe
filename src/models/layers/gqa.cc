#include "models/layers/gqa.h"

#include <cmath>

#include "kernels/attention.h"

namespace baton::models {

Result<GqaScratch> GqaScratch::allocate(const GqaShape& shape, const GqaHeads& heads, int64_t max_rows, int threads,
                                        parallel::Group group) {
  GqaScratch scratch;
  const auto bytes = [&](int64_t count) { return static_cast<size_t>(max_rows * count * shape.head_dim) * 4; };
  BATON_TRY_ASSIGN(scratch.qkv_, tensor::Buffer::allocate(bytes(heads.query.count() + 2 * heads.kv.count())));
  BATON_TRY_ASSIGN(scratch.heads_out_, group.share(bytes(shape.heads)));
  const int group_heads = shape.heads / shape.kv_heads;
  const int kv_heads = static_cast<int>(heads.kv.count());
  BATON_TRY_ASSIGN(scratch.attention_, tensor::Buffer::allocate(kernels::attention_scratch_bytes(
                                           group_heads * kv_heads, kv_heads, shape.head_dim, threads)));
  return scratch;
}

namespace {

// Whether the rank's KV heads serve its own query heads alone, each as many.
bool heads_are_even(const GqaShape& shape, const GqaHeads& heads) {
  const int64_t group = shape.heads / shape.kv_heads;
  return heads.query.begin == heads.kv.begin * group && heads.query.end == heads.kv.end * group;
}

// Attention of the rank's query heads, KV head by KV head where ranks part a group.
void attend(const GqaStep& step, int64_t stride, GqaScratch& scratch, ComputePool& pool) {
  const GqaShape& shape = step.shape;
  const parallel::Share own = step.heads.query, kv = step.heads.kv;
  kernels::AttentionArgs args = {.cache = step.cache,
                                 .heads = static_cast<int>(own.count()),
                                 .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                                 .q = scratch.qkv(),
                                 .q_stride = stride,
                                 .out = scratch.heads_out() + own.begin * shape.head_dim,
                                 .out_stride = shape.q_features(),
                                 .isa = step.isa};
  if (heads_are_even(shape, step.heads)) return kernels::paged_attention(args, step.slices, scratch.attention(), pool);
  const int64_t group = shape.heads / shape.kv_heads;
  args.cache.kv_heads = 1;
  for (int64_t h = kv.begin; h < kv.end; ++h) {
    const int64_t begin = std::max(own.begin, h * group), end = std::min(own.end, (h + 1) * group);
    if (begin >= end) continue;
    args.cache.base = step.cache.base + (h - kv.begin) * step.cache.head_stride;
    args.heads = static_cast<int>(end - begin);
    args.q = scratch.qkv() + (begin - own.begin) * shape.head_dim;
    args.out = scratch.heads_out() + begin * shape.head_dim;
    kernels::paged_attention(args, step.slices, scratch.attention(), pool);
  }
}

}  // namespace

void gqa_forward(const GqaWeights& weights, const GqaStep& step, TeamStep& team, GqaScratch& scratch,
                 QuantizedInput& input, float* y, int64_t hidden, ComputePool& pool) {
  const GqaShape& shape = step.shape;
  const int64_t q_heads = step.heads.query.count(), kv_heads = step.heads.kv.count();
  const int64_t stride = (q_heads + 2 * kv_heads) * shape.head_dim;
  float* q = scratch.qkv();
  float* k = q + q_heads * shape.head_dim;
  float* v = k + kv_heads * shape.head_dim;
  weights.q.apply(input, q, stride, pool);
  weights.k.apply(input, k, stride, pool);
  weights.v.apply(input, v, stride, pool);
  // q and k lie side by side: one pass over the heads of both.
  kernels::apply_rope(q, stride, static_cast<int>(q_heads + kv_heads), shape.head_dim, shape.rope_dim, step.positions,
                      step.cos_sin, shape.pairing, team.rows(), step.isa, pool);
  kernels::write_kv(step.cache, 0, step.slices, k, stride, v, stride, step.isa, pool);
  if (step.cache.context.size > 1) team.gathered();  // others' keys are read
  attend(step, stride, scratch, pool);
  team.gathered();
  input.set(scratch.heads_out(), team.rows(), shape.q_features());
  weights.o.apply(input, y, hidden, pool);
  team.gathered();
}

}  // namespace baton::models
