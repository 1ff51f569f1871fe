#include "models/layers/gqa.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "models/layers/linear_together.h"

namespace baton::models {

Result<GqaScratch> GqaScratch::allocate(const GqaShape& shape, const GqaHeads& heads, int64_t max_rows, int threads,
                                        parallel::Group group, const parallel::RankPlace& place) {
  GqaScratch scratch;
  const auto bytes = [&](int64_t count) { return static_cast<size_t>(max_rows * count * shape.head_dim) * 4; };
  BATON_TRY_ASSIGN(scratch.qkv_, tensor::Buffer::allocate(bytes(heads.query.count() + 2 * heads.kv.count())));
  BATON_TRY_ASSIGN(scratch.heads_out_, group.share(bytes(shape.heads)));
  BATON_TRY_ASSIGN(scratch.attention_, tensor::Buffer::allocate(kernels::attention_scratch_bytes(
                                           shape.heads / shape.kv_heads, 1, shape.head_dim, threads)));
  BATON_TRY_ASSIGN(scratch.lanes_,
                   ContextLanes::allocate(group, place, max_rows, shape.heads, shape.head_dim, shape.head_dim));
  scratch.borders_.resize(static_cast<size_t>(heads.kv.count()) + 1);
  return scratch;
}

const int32_t* GqaScratch::borders(const GqaShape& shape, const GqaHeads& held, parallel::Share heads) {
  const int64_t group = shape.heads / shape.kv_heads;
  if (heads.begin == held.kv.begin * group && heads.end == held.kv.end * group) return nullptr;  // all alike
  for (size_t j = 0; j < borders_.size(); ++j) {
    const int64_t border = (held.kv.begin + static_cast<int64_t>(j)) * group;
    borders_[j] = static_cast<int32_t>(std::clamp(border, heads.begin, heads.end) - heads.begin);
  }
  return borders_.data();
}

namespace {

kernels::AttentionArgs attention_args(const GqaStep& step, parallel::Share heads, const float* q, int64_t q_stride,
                                      GqaScratch& scratch) {
  const int64_t dim = step.shape.head_dim;
  return {.cache = step.cache,
          .heads = static_cast<int>(heads.count()),
          .head_borders = scratch.borders(step.shape, step.heads, heads),
          .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
          .q = q,
          .q_stride = q_stride,
          .out = scratch.heads_out() + heads.begin * dim,
          .out_stride = step.shape.q_features(),
          .isa = step.isa};
}

// The rank's lanes for the heads of its context group; then its own heads of all lanes.
void attend_lanes(const GqaStep& step, TeamStep& team, GqaScratch& scratch, ComputePool& pool) {
  ContextLanes& lanes = scratch.lanes();
  const parallel::Share own = step.heads.query, group = lanes.group_heads();
  kernels::paged_attention_lanes(attention_args(step, group, lanes.group_queries(), lanes.query_stride(), scratch),
                                 step.slices, lanes.partials(), scratch.attention(), pool);
  team.gathered();
  kernels::merge_lanes({.partials = lanes.partials(),
                        .first_head = static_cast<int>(own.begin - group.begin),
                        .heads = static_cast<int>(own.count()),
                        .out = scratch.heads_out() + own.begin * step.shape.head_dim,
                        .out_stride = step.shape.q_features(),
                        .isa = step.isa},
                       step.slices, scratch.attention(), pool);
}

// What others read of this rank is in its memory, and the other way round, when this returns.
void share_context(const GqaStep& step, int64_t stride, TeamStep& team, GqaScratch& scratch) {
  if (step.cache.context.size == 1) return;
  ContextLanes& lanes = scratch.lanes();
  const int64_t dim = step.shape.head_dim, features = step.heads.query.count() * dim;
  for (int64_t r = 0; lanes.serves(team) && r < team.rows(); ++r) {
    std::copy_n(scratch.qkv() + r * stride, features,
                lanes.queries() + r * lanes.query_stride() + step.heads.query.begin * dim);
  }
  team.gathered();
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
  apply_together({{weights.q, q, stride}, {weights.k, k, stride}, {weights.v, v, stride}}, input, pool);
  // q and k lie side by side: one pass over the heads of both.
  kernels::apply_rope(q, stride, static_cast<int>(q_heads + kv_heads), shape.head_dim, shape.rope_dim, step.positions,
                      step.cos_sin, shape.pairing, team.rows(), step.isa, pool);
  kernels::write_kv(step.cache, 0, step.slices, k, stride, v, stride, step.isa, pool);
  share_context(step, stride, team, scratch);
  if (scratch.lanes().serves(team)) {
    attend_lanes(step, team, scratch, pool);
  } else {
    kernels::paged_attention(attention_args(step, step.heads.query, q, stride, scratch), step.slices,
                             scratch.attention(), pool);
  }
  team.gathered();
  input.set(scratch.heads_out(), team.rows(), shape.q_features(), &team);
  weights.o.apply(input, y, hidden, pool);
  team.gathered();
}

}  // namespace baton::models
