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

  // gate = act(gate, up); both [rows, features], dense.
  void apply(float* gate, const float* up, int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool) const {
    if (kind == Kind::kSilu) {
      kernels::silu_mul(gate, features, up, features, gate, features, rows, features, isa, pool);
    } else {
      kernels::situ_mul(gate, features, up, features, bounds, gate, features, rows, features, isa, pool);
    }
  }
};

}  // namespace baton::models
