// The rows of gated_ops.h over the lane type Vec of the including file.
#pragma once

#include "kernels/gated_ops.h"
#include "kernels/lanes_impl.h"
#include "kernels/math_impl.h"

namespace baton::kernels {
namespace {

void gated_rms_norm_head(const float* x, const float* weight, float eps, const float* gate, float* y, int64_t dim) {
  Vec squares = Vec::set(0);
  for_lanes(dim, [&](int64_t i, int n) {
    const Vec v = load_lanes(x + i, n);
    squares = Vec::fma(v, v, squares);
  });
  const float mean = squares.reduce_add() / static_cast<float>(dim);
  const Vec scale = Vec::set(1.0f / __builtin_sqrtf(mean + eps));
  for_lanes(dim, [&](int64_t i, int n) {
    const Vec normed = load_lanes(x + i, n) * scale * load_lanes(weight + i, n);
    store_lanes(normed * math_impl::sigmoid(load_lanes(gate + i, n)), y + i, n);
  });
}

void situ_mul_row(const float* gate, const float* up, float beta, float linear_beta, float* y, int64_t features) {
  const Vec b = Vec::set(beta), l = Vec::set(linear_beta);
  for_lanes(features, [&](int64_t i, int n) {
    const Vec g = load_lanes(gate + i, n);
    const Vec bent = b * (math_impl::tanh(g / b) * math_impl::sigmoid(g));
    store_lanes(bent * (l * math_impl::tanh(load_lanes(up + i, n) / l)), y + i, n);
  });
}

void sigmoid_mul_row(const float* gate, float* y, int64_t features) {
  for_lanes(features, [&](int64_t i, int n) {
    store_lanes(load_lanes(y + i, n) * math_impl::sigmoid(load_lanes(gate + i, n)), y + i, n);
  });
}

constexpr GatedOps kGatedRows = {
    .gated_rms_norm = gated_rms_norm_head, .situ_mul = situ_mul_row, .sigmoid_mul = sigmoid_mul_row};

}  // namespace
}  // namespace baton::kernels
