#include "kernels/elementwise.h"

#include "kernels/elementwise_ops.h"

namespace baton::kernels {
namespace {

const ElementwiseOps& row_ops(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return kElementwiseAvx512;
    case tensor::Isa::kAvx2:
      return kElementwiseAvx2;
    case tensor::Isa::kPortable:
      break;
  }
  return kElementwisePortable;
}

}  // namespace

void rms_norm(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
              int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool) {
  const auto row = row_ops(isa).rms_norm;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(x + r * x_stride, weight, eps, y + r * y_stride, features);
  });
}

void layer_norm(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps, float* y,
                int64_t y_stride, int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool) {
  const auto row = row_ops(isa).layer_norm;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(x + r * x_stride, weight, bias, eps, y + r * y_stride, features);
  });
}

void add_rms_norm(float* residual, const float* x, const float* weight, float eps, float* y, int64_t rows,
                  int64_t features, tensor::Isa isa, ComputePool& pool) {
  const auto row = row_ops(isa).add_rms_norm;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * features; i < end * features; i += features) {
      row(residual + i, x + i, weight, eps, y + i, features);
    }
  });
}

void apply_rope(float* x, int64_t row_stride, int heads, int head_dim, int rope_dim, const int32_t* positions,
                const float* cos_sin, RopePairing pairing, int64_t rows, tensor::Isa isa, ComputePool& pool) {
  const ElementwiseOps& ops = row_ops(isa);
  const auto head = pairing == RopePairing::kHalfSplit ? ops.rope_half_split : ops.rope_interleaved;
  const int pairs = rope_dim / 2;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* cos = cos_sin + static_cast<int64_t>(positions[r]) * rope_dim;
      for (int h = 0; h < heads; ++h) head(x + r * row_stride + h * head_dim, pairs, cos, cos + pairs);
    }
  });
}

void silu_mul(const float* gate, int64_t gate_stride, const float* up, int64_t up_stride, float* y, int64_t y_stride,
              int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool) {
  const auto row = row_ops(isa).silu_mul;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(gate + r * gate_stride, up + r * up_stride, y + r * y_stride, features);
  });
}

void add(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows, int64_t features, tensor::Isa isa,
         ComputePool& pool) {
  const auto row = row_ops(isa).add;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(x + r * x_stride, y + r * y_stride, features);
  });
}

}  // namespace baton::kernels
