// One row of each op of elementwise.h, for each instruction set. Internal to this room.
#pragma once

#include <cstdint>

namespace baton::kernels {

struct ElementwiseOps {
  // The sum of squares has 16 interleaved partial sums (element i into i mod 16, ascending, with fma), added as a tree.
  void (*rms_norm)(const float* x, const float* weight, float eps, float* y, int64_t features);
  void (*add_rms_norm)(float* residual, const float* x, const float* weight, float eps, float* y, int64_t features);
  // Mean, then the variance of what is left of it, each summed as above; ((x - mean) * scale) * weight + bias by fma.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, float* y, int64_t features);
  // One head: a' = fma(a, cos, -(b sin)), b' = fma(b, cos, a sin). cos, sin: [pairs].
  void (*rope_half_split)(float* x, int pairs, const float* cos, const float* sin);
  void (*rope_interleaved)(float* x, int pairs, const float* cos, const float* sin);
  // (gate / (1 + exp(-gate))) * up
  void (*silu_mul)(const float* gate, const float* up, float* y, int64_t features);
  void (*add)(const float* x, float* y, int64_t features);
};
extern const ElementwiseOps kElementwisePortable;
extern const ElementwiseOps kElementwiseAvx2;
extern const ElementwiseOps kElementwiseAvx512;

}  // namespace baton::kernels
