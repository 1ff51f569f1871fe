// Rows of mixing.h for each instruction set. Internal to this room.
#pragma once

#include <cstdint>

namespace baton::kernels {

struct MixingOps {
  // y = tree(weights[s] * sources[s]) (+ shared), elements [0, features) of each.
  void (*combine)(const float* const* sources, const float* weights, int slots, const float* shared, float* y,
                  int64_t features);
  // sum(x * weight) / sqrt(mean(x^2) + eps); both sums have 16 interleaved partial sums, added as a tree.
  float (*score)(const float* x, const float* weight, float eps, int64_t features);
  // y = weights[0] sources[0], then fma(weights[j], sources[j], y).
  void (*weighted_sum)(const float* const* sources, const float* weights, int count, float* y, int64_t features);
};
extern const MixingOps kMixingPortable;
extern const MixingOps kMixingAvx2;
extern const MixingOps kMixingAvx512;

}  // namespace baton::kernels
