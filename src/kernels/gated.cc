#include "kernels/gated.h"

#include "kernels/gated_ops.h"

namespace baton::kernels {
namespace {

const GatedOps& gated_ops(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return kGatedAvx512;
    case tensor::Isa::kAvx2:
      return kGatedAvx2;
    case tensor::Isa::kPortable:
      break;
  }
  return kGatedPortable;
}

}  // namespace

void gated_rms_norm(const float* x, int64_t x_stride, const float* weight, float eps, const float* gate,
                    int64_t gate_stride, float* y, int64_t y_stride, int64_t rows, int heads, int dim, tensor::Isa isa,
                    ComputePool& pool) {
  const auto head = gated_ops(isa).gated_rms_norm;
  pool.parallel_for(rows * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / heads, at = i % heads * dim;
      head(x + r * x_stride + at, weight, eps, gate + r * gate_stride + at, y + r * y_stride + at, dim);
    }
  });
}

void situ_mul(const float* gate, int64_t gate_stride, const float* up, int64_t up_stride, SituBounds bounds, float* y,
              int64_t y_stride, int64_t rows, int64_t features, tensor::Isa isa, ComputePool& pool) {
  const auto row = gated_ops(isa).situ_mul;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      row(gate + r * gate_stride, up + r * up_stride, bounds.beta, bounds.linear_beta, y + r * y_stride, features);
    }
  });
}

void sigmoid_mul(const float* gate, int64_t gate_stride, float* y, int64_t y_stride, int64_t rows, int64_t features,
                 tensor::Isa isa, ComputePool& pool) {
  const auto row = gated_ops(isa).sigmoid_mul;
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(gate + r * gate_stride, y + r * y_stride, features);
  });
}

}  // namespace baton::kernels
