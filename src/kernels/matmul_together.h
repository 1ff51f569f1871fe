// Several matrices over one input in one pass over the threads: q, k and v; gate and up.
#pragma once

#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/matmul.h"

namespace baton::kernels {

struct MatmulPart {
  const PackedMatrix* w = nullptr;
  const float* bias = nullptr;  // [N] or null
  float* y = nullptr;           // [x.rows(), y_stride] fp32
  int64_t y_stride = 0;
};

// `matmul` of each part, bit for bit. Each must read x's format (and, int8_static, its StaticQuant). Threads get equal
// work however the parts differ in outputs, and meet once.
void matmul_together(std::span<const MatmulPart> parts, const ActivationBuffer& x, ComputePool& pool);

}  // namespace baton::kernels
