// Rows under gates: a head's norm times a sigmoid, SiTU, a sigmoid alone. fp32; every row is computed alone.
#pragma once

#include <cstdint>

#include "base/compute_pool.h"
#include "tensor/cpu.h"

namespace baton::kernels {

// y = rms_norm(x; weight, eps) * sigmoid(gate) for each head of dim elements: KDA's output. x, gate, y: [rows, heads *
// dim] with row strides; weight: [dim]; y may be x.
void gated_rms_norm(const float* x, int64_t x_stride, const float* weight, float eps, const float* gate,
                    int64_t gate_stride, float* y, int64_t y_stride, int64_t rows, int heads, int dim, tensor::Isa isa,
                    ComputePool& pool);

// Kimi K3's activation (`situ`): y = beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta), which is
// silu(g) u for small inputs and bounded for large ones.
struct SituBounds {
  float beta = 4;
  float linear_beta = 25;
  bool operator==(const SituBounds&) const = default;
};
// gate, up, y: [rows, features]; y may be either input.
void situ_mul(const float* gate, int64_t gate_stride, const float* up, int64_t up_stride, SituBounds bounds, float* y,
              int64_t y_stride, int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool);

// y *= sigmoid(gate) over [rows, features].
void sigmoid_mul(const float* gate, int64_t gate_stride, float* y, int64_t y_stride, int64_t rows, int64_t features,
                 tensor::Isa isa, ComputePool& pool);

}  // namespace baton::kernels
