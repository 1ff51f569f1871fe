#include "models/layers/mlp.h"

#include "models/layers/linear_together.h"

namespace baton::models {

Result<MlpScratch> MlpScratch::allocate(int64_t max_rows, int64_t intermediate, parallel::Group group) {
  MlpScratch scratch;
  scratch.features_ = intermediate;
  const auto bytes = [&](int64_t features) { return static_cast<size_t>(max_rows * features) * sizeof(float); };
  const int64_t own = TeamStep::columns_of(intermediate, group).count();
  BATON_TRY_ASSIGN(scratch.gate_, tensor::Buffer::allocate(bytes(own)));
  BATON_TRY_ASSIGN(scratch.up_, tensor::Buffer::allocate(bytes(own)));
  if (group.size() > 1) {
    BATON_TRY_ASSIGN(scratch.activated_, group.share(bytes(intermediate)));
  }
  return scratch;
}

void mlp_activate(const MlpWeights& weights, const TeamStep& team, MlpScratch& scratch, QuantizedInput& input,
                  tensor::Isa isa, ComputePool& pool, const GatedActivation& activation) {
  const int64_t own = weights.gate.out_features(), first = team.columns(scratch.features_).begin;
  auto* gate = scratch.gate_.as<float>();
  auto* up = scratch.up_.as<float>();
  apply_together({{weights.gate, gate, own}, {weights.up, up, own}}, input, pool);
  activation.apply(gate, up, scratch.activated() + first, scratch.features_, team.rows(), own, isa, pool);
}

void mlp_finish(const MlpWeights& weights, TeamStep& team, MlpScratch& scratch, QuantizedInput& input, float* y,
                int64_t y_stride, ComputePool& pool) {
  input.set(scratch.activated(), team.rows(), scratch.features_, &team);
  weights.down.apply(input, y, y_stride, pool);
}

void mlp_forward(const MlpWeights& weights, TeamStep& team, MlpScratch& scratch, QuantizedInput& input, float* y,
                 int64_t hidden, tensor::Isa isa, ComputePool& pool, const GatedActivation& activation) {
  mlp_activate(weights, team, scratch, input, isa, pool, activation);
  team.gathered();
  mlp_finish(weights, team, scratch, input, y, hidden, pool);
  team.gathered();
}

}  // namespace baton::models
