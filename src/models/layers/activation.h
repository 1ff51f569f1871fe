// The activation between a feed-forward block's gate and up projections and its down projection.
#pragma once

#include <cstdint>

#include "base/compute_pool.h"
#include "kernels/elementwise.h"
#include "kernels/gated.h"

namespace baton::models {

struct GatedActivation {
  enum class Kind : uint8_t { kSilu, kSitu };
  Kind kind = Kind::kSilu;
  kernels::SituBounds bounds;  // kSitu

  // y = act(gate, up); gate and up [rows, features], dense; rows of y y_stride apart. y may be gate.
  void apply(const float* gate, const float* up, float* y, int64_t y_stride, int64_t rows, int64_t features,
             tensor::Isa isa, ComputePool& pool) const {
    if (features == 0) return;
    if (kind == Kind::kSilu) {
      kernels::silu_mul(gate, features, up, features, y, y_stride, rows, features, isa, pool);
    } else {
      kernels::situ_mul(gate, features, up, features, bounds, y, y_stride, rows, features, isa, pool);
    }
  }
};

}  // namespace baton::models
