// A weight matrix (a rank's part of it) with its bias, and the input that several of them share.
#pragma once

#include <cstdint>
#include <span>
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

// A matrix, or the consecutive outputs of one that a rank holds; possibly none.
struct Linear {
  kernels::PackedMatrix weight;
  std::vector<float> bias;  // [outputs held], or empty
  int64_t first = 0;        // of the outputs held, among the whole matrix's

  int64_t out_features() const { return weight.spec().out_features; }
  // y: [rows, ...] with row stride y_stride; the outputs held are written from column `first` on.
  void apply(QuantizedInput& x, float* y, int64_t y_stride, ComputePool& pool) const {
    apply_held(x, y + first, y_stride, pool);
  }
  // The same from column 0 on.
  void apply_held(QuantizedInput& x, float* y, int64_t y_stride, ComputePool& pool) const {
    const kernels::MatmulSpec& spec = weight.spec();
    if (spec.out_features == 0) return;
    kernels::matmul(weight, x.as(kernels::activation_format(spec.dtype), spec.isa, pool, weight.static_quant()),
                    bias.empty() ? nullptr : bias.data(), y, y_stride, pool);
  }
};

// The rows of those tokens that `table`, outputs of an embedding by vocabulary, holds: into y [tokens, hidden].
inline void embed_tokens(const Linear& table, std::span<const int32_t> tokens, float* y, int64_t hidden,
                         ComputePool& pool) {
  const int64_t first = table.first, end = first + table.out_features();
  pool.parallel_for(std::ssize(tokens), 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      if (first <= tokens[i] && tokens[i] < end) kernels::unpack_row(table.weight, tokens[i] - first, y + i * hidden);
    }
  });
}

}  // namespace baton::models
