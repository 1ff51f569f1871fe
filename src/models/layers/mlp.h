// The gated feed-forward block: down(act(gate(x), up(x))), act(g, u) = silu(g) u or SiTU.
#pragma once

#include "base/compute_pool.h"
#include "models/layers/activation.h"
#include "models/layers/linear.h"
#include "tensor/buffer.h"

namespace baton::models {

struct MlpWeights {
  Linear gate, up, down;
};

// Shared by all layers; sized once.
class MlpScratch {
 public:
  static Result<MlpScratch> allocate(int64_t max_rows, int64_t intermediate) {
    MlpScratch scratch;
    const auto bytes = static_cast<size_t>(max_rows * intermediate) * sizeof(float);
    BATON_TRY_ASSIGN(scratch.gate_, tensor::Buffer::allocate(bytes));
    BATON_TRY_ASSIGN(scratch.up_, tensor::Buffer::allocate(bytes));
    return scratch;
  }
  float* gate() { return gate_.as<float>(); }  // [rows, intermediate]
  float* up() { return up_.as<float>(); }

 private:
  tensor::Buffer gate_, up_;
};

// x: the normed input, already set in `input`; y: [rows, hidden].
void mlp_forward(const MlpWeights& weights, int64_t rows, MlpScratch& scratch, QuantizedInput& input, float* y,
                 tensor::Isa isa, ComputePool& pool, const GatedActivation& activation = {});

}  // namespace baton::models
