// One row of each op of gated.h, for each instruction set. Internal to this room.
#pragma once

#include <cstdint>

namespace baton::kernels {

struct GatedOps {
  // One head. The sum of squares as in elementwise_ops.h; y = ((x scale) weight) sigmoid(gate).
  void (*gated_rms_norm)(const float* x, const float* weight, float eps, const float* gate, float* y, int64_t dim);
  // y = (beta (tanh(g / beta) sigmoid(g))) (linear_beta tanh(u / linear_beta))
  void (*situ_mul)(const float* gate, const float* up, float beta, float linear_beta, float* y, int64_t features);
  void (*sigmoid_mul)(const float* gate, float* y, int64_t features);
};
extern const GatedOps kGatedPortable;
extern const GatedOps kGatedAvx2;
extern const GatedOps kGatedAvx512;

}  // namespace baton::kernels
