#include "models/layers/kda.h"

#include <algorithm>

#include "kernels/gated.h"

namespace baton::models {
namespace {

// Everything that reads the layer's input, which `input` holds; then what reads the low-rank parts.
void project(const KdaWeights& weights, const KdaStep& step, TeamStep& team, KdaScratch& scratch, QuantizedInput& input,
             ComputePool& pool) {
  const kernels::KdaShape& heads = step.shape.heads;
  const int64_t keys = heads.key_features(), values = heads.value_features(), stride = 2 * keys + values;
  weights.q.apply(input, scratch.qkv(), stride, pool);
  weights.k.apply(input, scratch.qkv() + keys, stride, pool);
  weights.v.apply(input, scratch.qkv() + 2 * keys, stride, pool);
  weights.beta.apply(input, scratch.beta(), heads.heads, pool);
  weights.f_a.apply(input, scratch.decay_low(), step.shape.decay_rank, pool);
  if (weights.gate_a)
    weights.gate_a->apply(input, scratch.gate_low(), step.shape.gate_rank, pool);
  else
    weights.gate.apply(input, scratch.gate(), values, pool);
  team.gathered();

  input.set(scratch.decay_low(), team.rows(), step.shape.decay_rank, &team);
  weights.f_b.apply(input, scratch.decay(), keys, pool);
  if (!weights.gate_a) return;
  input.set(scratch.gate_low(), team.rows(), step.shape.gate_rank, &team);
  weights.gate.apply(input, scratch.gate(), values, pool);
}

}  // namespace

Result<KdaScratch> KdaScratch::allocate(const KdaLayerShape& shape, int64_t max_rows, parallel::Group group) {
  BATON_TRY(kernels::check_kda_shape(shape.heads));
  KdaScratch scratch;
  const auto bytes = [&](int64_t features) { return static_cast<size_t>(max_rows * features) * sizeof(float); };
  const int64_t keys = shape.heads.key_features(), values = shape.heads.value_features();
  BATON_TRY_ASSIGN(scratch.qkv_, tensor::Buffer::allocate(bytes(2 * keys + values)));
  BATON_TRY_ASSIGN(scratch.decay_, tensor::Buffer::allocate(bytes(keys)));
  BATON_TRY_ASSIGN(scratch.gate_, tensor::Buffer::allocate(bytes(values)));
  BATON_TRY_ASSIGN(scratch.beta_, tensor::Buffer::allocate(bytes(shape.heads.heads)));
  BATON_TRY_ASSIGN(scratch.decay_low_, group.share(bytes(shape.decay_rank)));
  BATON_TRY_ASSIGN(scratch.gate_low_, group.share(bytes(std::max<int64_t>(shape.gate_rank, 1))));
  BATON_TRY_ASSIGN(scratch.heads_out_, group.share(bytes(shape.total_values())));
  return scratch;
}

void kda_forward(const KdaWeights& weights, const KdaStep& step, TeamStep& team, KdaScratch& scratch,
                 QuantizedInput& input, float* y, int64_t hidden, ComputePool& pool) {
  const kernels::KdaShape& heads = step.shape.heads;
  const int64_t keys = heads.key_features(), values = heads.value_features(), stride = 2 * keys + values;
  const int64_t total = step.shape.total_values();
  float* out = scratch.heads_out() + int64_t{step.shape.first_head} * heads.value_dim;
  project(weights, step, team, scratch, input, pool);
  kernels::kda({.shape = heads,
                .decay = step.shape.decay,
                .lower_bound = step.shape.lower_bound,
                .unit_epsilon = step.shape.unit_eps,
                .q = scratch.qkv(),
                .k = scratch.qkv() + keys,
                .v = scratch.qkv() + 2 * keys,
                .q_stride = stride,
                .k_stride = stride,
                .v_stride = stride,
                .decay_input = scratch.decay(),
                .decay_stride = keys,
                .beta = scratch.beta(),
                .beta_stride = heads.heads,
                .q_conv = weights.q_conv.data(),
                .k_conv = weights.k_conv.data(),
                .v_conv = weights.v_conv.data(),
                .dt_bias = weights.dt_bias.data(),
                .a_log = weights.a_log.data(),
                .state = step.state,
                .out = out,
                .out_stride = total,
                .isa = step.isa},
               step.slices, pool);
  kernels::gated_rms_norm(out, total, weights.o_norm.data(), step.shape.norm_eps, scratch.gate(), values, out, total,
                          team.rows(), heads.heads, heads.value_dim, step.isa, pool);
  team.gathered();
  input.set(scratch.heads_out(), team.rows(), total, &team);
  weights.o.apply(input, y, hidden, pool);
  team.gathered();
}

}  // namespace baton::models
