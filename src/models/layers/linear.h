// A weight matrix with its bias, and the input that several of them share.
#pragma once

#include <vector>

#include "base/compute_pool.h"
#include "kernels/matmul.h"

namespace baton::models {

// fp32 rows that are quantised once for all matrices of one activation format that read them. Used by one thread.
class QuantizedInput {
 public:
  static Result<QuantizedInput> allocate(int64_t max_rows, int64_t max_features) {
    QuantizedInput input;
    BATON_TRY_ASSIGN(input.buffer_, kernels::ActivationBuffer::allocate(max_rows, max_features));
    return input;
  }
  // x: [rows, features], dense; must stay as it is until the next set().
  void set(const float* x, int64_t rows, int64_t features) {
    x_ = x;
    rows_ = rows;
    features_ = features;
    fresh_ = false;
  }
  // quant: of the weight that reads it, where the format is kInt8Static.
  const kernels::ActivationBuffer& as(kernels::ActivationFormat format, tensor::Isa isa, ComputePool& pool,
                                      kernels::StaticQuant quant = {}) {
    if (!fresh_ || buffer_.format() != format || buffer_.static_quant() != quant) {
      buffer_.quantize(x_, features_, rows_, features_, format, isa, pool, quant);
    }
    fresh_ = true;
    return buffer_;
  }

 private:
  kernels::ActivationBuffer buffer_;
  const float* x_ = nullptr;
  int64_t rows_ = 0, features_ = 0;
  bool fresh_ = false;
};

struct Linear {
  kernels::PackedMatrix weight;
  std::vector<float> bias;  // [out], or empty

  int64_t out_features() const { return weight.spec().out_features; }
  // y: [rows, out_features] with row stride y_stride.
  void apply(QuantizedInput& x, float* y, int64_t y_stride, ComputePool& pool) const {
    const kernels::MatmulSpec& spec = weight.spec();
    kernels::matmul(weight, x.as(kernels::activation_format(spec.dtype), spec.isa, pool, weight.static_quant()),
                    bias.empty() ? nullptr : bias.data(), y, y_stride, pool);
  }
};

}  // namespace baton::models
