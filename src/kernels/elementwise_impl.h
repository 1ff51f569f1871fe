// The rows of elementwise_ops.h over the lane type Vec of the including file.
#pragma once

#include <cmath>

#include "kernels/elementwise_ops.h"
#include "kernels/lanes_impl.h"
#include "kernels/math_impl.h"

namespace baton::kernels {
namespace {

inline void scale_row(const float* x, Vec squares, const float* weight, float eps, float* y, int64_t features) {
  const float mean = squares.reduce_add() / static_cast<float>(features);
  const Vec scale = Vec::set(1.0f / __builtin_sqrtf(mean + eps));
  for_lanes(features,
            [&](int64_t i, int n) { store_lanes(load_lanes(x + i, n) * scale * load_lanes(weight + i, n), y + i, n); });
}

void rms_norm_row(const float* x, const float* weight, float eps, float* y, int64_t features) {
  Vec squares = Vec::set(0);
  for_lanes(features, [&](int64_t i, int n) {
    const Vec v = load_lanes(x + i, n);
    squares = Vec::fma(v, v, squares);
  });
  scale_row(x, squares, weight, eps, y, features);
}

void add_rms_norm_row(float* residual, const float* x, const float* weight, float eps, float* y, int64_t features) {
  Vec squares = Vec::set(0);
  for_lanes(features, [&](int64_t i, int n) {
    const Vec v = load_lanes(residual + i, n) + load_lanes(x + i, n);
    store_lanes(v, residual + i, n);
    squares = Vec::fma(v, v, squares);
  });
  scale_row(residual, squares, weight, eps, y, features);
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* y, int64_t features) {
  Vec sum = Vec::set(0);
  for_lanes(features, [&](int64_t i, int n) { sum = sum + load_lanes(x + i, n); });
  const Vec mean = Vec::set(sum.reduce_add() / static_cast<float>(features));
  Vec squares = Vec::set(0);
  for_lanes(features, [&](int64_t i, int n) {
    // Lanes beyond the row hold zeros, not minus the mean.
    float centred[16];
    store_lanes(load_lanes(x + i, n) - mean, centred, n);
    const Vec v = load_lanes(centred, n);
    squares = Vec::fma(v, v, squares);
  });
  const Vec scale = Vec::set(1.0f / __builtin_sqrtf(squares.reduce_add() / static_cast<float>(features) + eps));
  for_lanes(features, [&](int64_t i, int n) {
    const Vec v = (load_lanes(x + i, n) - mean) * scale;
    store_lanes(Vec::fma(v, load_lanes(weight + i, n), load_lanes(bias + i, n)), y + i, n);
  });
}

void rope_half_split_head(float* x, int pairs, const float* cos, const float* sin) {
  for_lanes(pairs, [&](int64_t i, int n) {
    const Vec a = load_lanes(x + i, n);
    const Vec b = load_lanes(x + pairs + i, n);
    const Vec c = load_lanes(cos + i, n);
    const Vec s = load_lanes(sin + i, n);
    store_lanes(Vec::fma(a, c, Vec::set(0) - b * s), x + i, n);
    store_lanes(Vec::fma(b, c, a * s), x + pairs + i, n);
  });
}

inline __attribute__((always_inline)) void rotate_eight_pairs(float* x, const float* cos, const float* sin) {
  const Vec v = Vec::load(x);
  Vec::fma(v, Vec::load_twice(cos, false), v.swap_pairs() * Vec::load_twice(sin, true)).store(x);
}

void rope_interleaved_head(float* x, int pairs, const float* cos, const float* sin) {
  int i = 0;
  for (; i + 8 <= pairs; i += 8) rotate_eight_pairs(x + 2 * i, cos + i, sin + i);
  if (i == pairs) return;
  float rest[16] = {}, rest_cos[8] = {}, rest_sin[8] = {};
  for (int j = 0; j < pairs - i; ++j) {
    rest[2 * j] = x[2 * (i + j)];
    rest[2 * j + 1] = x[2 * (i + j) + 1];
    rest_cos[j] = cos[i + j];
    rest_sin[j] = sin[i + j];
  }
  rotate_eight_pairs(rest, rest_cos, rest_sin);
  for (int j = 0; j < 2 * (pairs - i); ++j) x[2 * i + j] = rest[j];
}

void silu_mul_row(const float* gate, const float* up, float* y, int64_t features) {
  const Vec one = Vec::set(1);
  for_lanes(features, [&](int64_t i, int n) {
    const Vec g = load_lanes(gate + i, n);
    const Vec e = math_impl::exp(Vec::set(0) - g);
    store_lanes(g / (one + e) * load_lanes(up + i, n), y + i, n);
  });
}

void add_row(const float* x, float* y, int64_t features) {
  for_lanes(features, [&](int64_t i, int n) { store_lanes(load_lanes(y + i, n) + load_lanes(x + i, n), y + i, n); });
}

constexpr ElementwiseOps kRows = {
    .rms_norm = rms_norm_row,
    .add_rms_norm = add_rms_norm_row,
    .layer_norm = layer_norm_row,
    .rope_half_split = rope_half_split_head,
    .rope_interleaved = rope_interleaved_head,
    .silu_mul = silu_mul_row,
    .add = add_row,
};

}  // namespace
}  // namespace baton::kernels
