#include "kernels/gated.h"

#include <algorithm>

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

// body(row, first feature, count) over spans of rows, so that a single row still keeps several threads busy.
template <typename Body>
void for_spans(int64_t rows, int64_t features, ComputePool& pool, Body body) {
  constexpr int64_t kSpan = 1024;
  const int64_t spans = (features + kSpan - 1) / kSpan;
  pool.parallel_for(rows * spans, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = i % spans * kSpan;
      body(i / spans, from, std::min(kSpan, features - from));
    }
  });
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
  const auto part = gated_ops(isa).situ_mul;
  for_spans(rows, features, pool, [&](int64_t r, int64_t from, int64_t count) {
    part(gate + r * gate_stride + from, up + r * up_stride + from, bounds.beta, bounds.linear_beta,
         y + r * y_stride + from, count);
  });
}

void sigmoid_mul(const float* gate, int64_t gate_stride, float* y, int64_t y_stride, int64_t rows, int64_t features,
                 tensor::Isa isa, ComputePool& pool) {
  const auto part = gated_ops(isa).sigmoid_mul;
  for_spans(rows, features, pool, [&](int64_t r, int64_t from, int64_t count) {
    part(gate + r * gate_stride + from, y + r * y_stride + from, count);
  });
}

}  // namespace baton::kernels
