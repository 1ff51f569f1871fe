// The gated feed-forward block: down(act(gate(x), up(x))), act(g, u) = silu(g) u or SiTU.
#pragma once

#include "base/compute_pool.h"
#include "models/layers/activation.h"
#include "models/layers/linear.h"
#include "models/layers/team.h"

namespace baton::models {

// A rank holds the same outputs of gate and up, and some of down's.
struct MlpWeights {
  Linear gate, up, down;
};

// Shared by all layers; sized once.
class MlpScratch {
 public:
  // The same call on each rank of the team.
  static Result<MlpScratch> allocate(int64_t max_rows, int64_t intermediate, parallel::Group group = {});

 private:
  friend void mlp_activate(const MlpWeights&, const TeamStep&, MlpScratch&, QuantizedInput&, tensor::Isa, ComputePool&,
                           const GatedActivation&);
  friend void mlp_finish(const MlpWeights&, TeamStep&, MlpScratch&, QuantizedInput&, float*, int64_t, ComputePool&);
  int64_t features_ = 0;
  tensor::Buffer gate_, up_;  // [rows, outputs held]
  // [rows, intermediate], of the team; null with one rank: gate_
  std::shared_ptr<tensor::Buffer> activated_;
  float* activated() { return activated_ ? activated_->as<float>() : gate_.as<float>(); }
};

// x: the normed input, already set in `input`. The rank's columns of act(gate(x), up(x)), into memory of the team.
void mlp_activate(const MlpWeights& weights, const TeamStep& team, MlpScratch& scratch, QuantizedInput& input,
                  tensor::Isa isa, ComputePool& pool, const GatedActivation& activation);
// After the team has gathered: the rank's columns of y [rows, hidden], rows y_stride apart.
void mlp_finish(const MlpWeights& weights, TeamStep& team, MlpScratch& scratch, QuantizedInput& input, float* y,
                int64_t y_stride, ComputePool& pool);

// Both. y: [rows, hidden] of the team, of which all columns are there on return.
void mlp_forward(const MlpWeights& weights, TeamStep& team, MlpScratch& scratch, QuantizedInput& input, float* y,
                 int64_t hidden, tensor::Isa isa, ComputePool& pool, const GatedActivation& activation = {});

}  // namespace baton::models
