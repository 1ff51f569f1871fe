// Norms, rotary positions, activations and adds over fp32 rows. Every row is computed alone, in one order.
#pragma once

#include <cstdint>

#include "base/compute_pool.h"
#include "tensor/cpu.h"

namespace baton::kernels {

// y = x * rsqrt(mean(x^2) + eps) * weight. x, y: [rows, features]; may alias.
void rms_norm(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
              int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool);

// y = (x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias. x, y: [rows, features]; may alias.
void layer_norm(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps, float* y,
                int64_t y_stride, int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool);

// residual += x, then y = rms_norm(residual): one pass. residual: [rows, features].
void add_rms_norm(float* residual, const float* x, const float* weight, float eps, float* y, int64_t rows,
                  int64_t features, tensor::Isa isa, ComputePool& pool);

enum class RopePairing : uint8_t {
  kHalfSplit,    // (i, i + d/2): Hugging Face llama ("neox")
  kInterleaved,  // (2i, 2i + 1): GGUF llama, DeepSeek
};

// Rotates x [rows, heads, head_dim] in place. cos_sin: [max_positions, rope_dim] fp32, cosines of the rope_dim / 2
// pairs, then sines. Only the first rope_dim entries of a head are rotated. positions: [rows].
void apply_rope(float* x, int64_t row_stride, int heads, int head_dim, int rope_dim, const int32_t* positions,
                const float* cos_sin, RopePairing pairing, int64_t rows, tensor::Isa isa, ComputePool& pool);

// y = silu(gate) * up, y: [rows, features]. exp by the polynomial of kernels/math, never libm.
void silu_mul(const float* gate, int64_t gate_stride, const float* up, int64_t up_stride, float* y, int64_t y_stride,
              int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool);

// y += x over [rows, features].
void add(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows, int64_t features, tensor::Isa isa,
         ComputePool& pool);

}  // namespace baton::kernels
