#include <cstring>

#include "base/check.h"
#include "kernels/activation_rows.h"
#include "kernels/matmul.h"

namespace baton::kernels {
namespace {

int group_of(ActivationFormat format) { return format == ActivationFormat::kInt8Group256 ? 256 : 32; }

QuantizeRowFunction quantize_row(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return quantize_row_avx512;
    case tensor::Isa::kAvx2:
      return quantize_row_avx2;
    case tensor::Isa::kPortable:
      break;
  }
  return quantize_row_ref;
}

Bf16RowFunction bf16_row(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return bf16_row_avx512;
    case tensor::Isa::kAvx2:
      return bf16_row_avx2;
    case tensor::Isa::kPortable:
      break;
  }
  return bf16_row_ref;
}

}  // namespace

Result<ActivationBuffer> ActivationBuffer::allocate(int64_t max_rows, int64_t max_features) {
  if (max_rows < 1 || max_features < 1 || max_rows > (int64_t{1} << 40) / max_features) {
    return fail(Code::kInvalidArgument, "activations of {} rows x {}: sizes must be at least 1 and their product sane",
                max_rows, max_features);
  }
  ActivationBuffer buffer;
  buffer.max_rows_ = max_rows;
  buffer.max_features_ = max_features;
  const auto rows = static_cast<size_t>(max_rows);
  const auto groups = static_cast<size_t>(max_features + 31) / 32;
  BATON_TRY_ASSIGN(buffer.values_, tensor::Buffer::allocate(rows * static_cast<size_t>(max_features) * 4));
  BATON_TRY_ASSIGN(buffer.scales_, tensor::Buffer::allocate(rows * groups * 4));
  BATON_TRY_ASSIGN(buffer.sums_, tensor::Buffer::allocate(rows * groups * 4));
  BATON_TRY_ASSIGN(buffer.scaled_sums_, tensor::Buffer::allocate(rows * groups * 4));
  BATON_TRY_ASSIGN(buffer.short_sums_, tensor::Buffer::allocate(rows * ((groups + 7) / 8) * kShortSums * 2));
  return buffer;
}

void ActivationBuffer::quantize(const float* x, int64_t x_stride, int64_t rows, int64_t features,
                                ActivationFormat format, tensor::Isa isa, ComputePool& pool) {
  BATON_CHECK(rows >= 0 && rows <= max_rows_ && features > 0 && features <= max_features_, "{} x {} in {} x {}", rows,
              features, max_rows_, max_features_);
  format_ = format;
  rows_ = rows;
  features_ = features;
  scales_per_row_ = 0;
  if (format == ActivationFormat::kF32) {
    row_stride_bytes_ = features * 4;
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        std::memcpy(values_.data() + r * row_stride_bytes_, x + r * x_stride, static_cast<size_t>(row_stride_bytes_));
      }
    });
    return;
  }
  if (format == ActivationFormat::kBF16) {
    // Whole pairs; the last is filled with a zero.
    const int64_t padded = (features + 1) / 2 * 2;
    row_stride_bytes_ = padded * 2;
    const auto convert = bf16_row(isa);
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        auto* out = values_.as<uint16_t>() + r * padded;
        convert(x + r * x_stride, features, out);
        if (padded > features) out[features] = 0;
      }
    });
    return;
  }
  const int group = group_of(format);
  BATON_CHECK(features % group == 0, "{} inputs in groups of {}", features, group);
  row_stride_bytes_ = features;
  scales_per_row_ = features / group;
  const auto convert = quantize_row(isa);
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const QuantizedRow out{values_.as<int8_t>() + r * features, scales_.as<float>() + r * scales_per_row_,
                             sums_.as<int32_t>() + r * (features / 32), scaled_sums_.as<float>() + r * (features / 32),
                             short_sums_.as<int16_t>() + r * (features / 256) * kShortSums};
      convert(x + r * x_stride, features, group, out);
    }
  });
}

}  // namespace baton::kernels
