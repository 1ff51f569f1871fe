// The rows of mixing_ops.h over the lane type Vec of the including file.
#pragma once

#include "kernels/lanes_impl.h"
#include "kernels/mixing_ops.h"

namespace baton::kernels {
namespace {

constexpr int kTreeDepth = 8;  // subtrees held at once: more than log2(kMaxSlots) + 1

// Subtrees of 2^i slots stand on a stack, largest first. A new slot joins all that its number's trailing ones name, so
// that neighbours are added; what is left at the end is added from the right.
void combine_row(const float* const* sources, const float* weights, int slots, const float* shared, float* y,
                 int64_t features) {
  for_lanes(features, [&](int64_t i, int n) {
    Vec stack[kTreeDepth];
    int height = 0;
    for (int s = 0; s < slots; ++s) {
      Vec sum = Vec::set(weights[s]) * load_lanes(sources[s] + i, n);
      for (int bits = s; (bits & 1) != 0; bits >>= 1) sum = stack[--height] + sum;
      stack[height++] = sum;
    }
    Vec sum = stack[--height];
    while (height > 0) sum = stack[--height] + sum;
    if (shared != nullptr) sum = sum + load_lanes(shared + i, n);
    store_lanes(sum, y + i, n);
  });
}

float score_row(const float* x, const float* weight, float eps, int64_t features) {
  Vec squares = Vec::set(0), products = Vec::set(0);
  for_lanes(features, [&](int64_t i, int n) {
    const Vec v = load_lanes(x + i, n);
    squares = Vec::fma(v, v, squares);
    products = Vec::fma(v, load_lanes(weight + i, n), products);
  });
  return products.reduce_add() / __builtin_sqrtf(squares.reduce_add() / static_cast<float>(features) + eps);
}

void weighted_sum_row(const float* const* sources, const float* weights, int count, float* y, int64_t features) {
  for_lanes(features, [&](int64_t i, int n) {
    Vec sum = Vec::set(weights[0]) * load_lanes(sources[0] + i, n);
    for (int j = 1; j < count; ++j) sum = Vec::fma(Vec::set(weights[j]), load_lanes(sources[j] + i, n), sum);
    store_lanes(sum, y + i, n);
  });
}

constexpr MixingOps kMixingRows = {.combine = combine_row, .score = score_row, .weighted_sum = weighted_sum_row};

}  // namespace
}  // namespace baton::kernels
