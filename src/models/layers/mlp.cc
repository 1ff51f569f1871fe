#include "models/layers/mlp.h"

namespace baton::models {

void mlp_forward(const MlpWeights& weights, int64_t rows, MlpScratch& scratch, QuantizedInput& input, float* y,
                 tensor::Isa isa, ComputePool& pool, const GatedActivation& activation) {
  const int64_t features = weights.gate.out_features();
  weights.gate.apply(input, scratch.gate(), features, pool);
  weights.up.apply(input, scratch.up(), features, pool);
  activation.apply(scratch.gate(), scratch.up(), rows, features, isa, pool);
  input.set(scratch.gate(), rows, features);
  weights.down.apply(input, y, weights.down.out_features(), pool);
}

}  // namespace baton::models
