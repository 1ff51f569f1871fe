#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "kernels/activation_rows.h"
#include "kernels/matmul.h"

namespace baton::kernels {
namespace {

int group_of(ActivationFormat format) { return format == ActivationFormat::kInt8Group256 ? 256 : 32; }

// The form of an instruction set.
template <typename Function>
Function pick(tensor::Isa isa, Function portable, Function avx2, Function avx512) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return avx512;
    case tensor::Isa::kAvx2:
      return avx2;
    case tensor::Isa::kPortable:
      break;
  }
  return portable;
}

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

namespace {

// Bytes of each part: values, scales, sums, scaled sums, short sums; whole cache lines.
std::array<size_t, 5> part_bytes(int64_t max_rows, int64_t max_features) {
  const int64_t groups = (max_features + 31) / 32;
  std::array<size_t, 5> bytes{};
  const int64_t of_row[] = {groups * 32 * 4, groups * 4, groups * 4, groups * 4,
                            (groups + 7) / 8 * ActivationBuffer::kShortSums * 2};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<size_t>(round_up(max_rows * of_row[i], 64));
  return bytes;
}

}  // namespace

size_t ActivationBuffer::bytes(int64_t max_rows, int64_t max_features) {
  const auto parts = part_bytes(max_rows, max_features);
  return std::accumulate(parts.begin(), parts.end(), size_t{0});
}

Result<ActivationBuffer> ActivationBuffer::allocate(int64_t max_rows, int64_t max_features) {
  if (max_rows < 1 || max_features < 1 || max_rows > (int64_t{1} << 40) / max_features) {
    return fail(Code::kInvalidArgument, "activations of {} rows x {}: sizes must be at least 1 and their product sane",
                max_rows, max_features);
  }
  BATON_TRY_ASSIGN(auto memory, tensor::Buffer::allocate(bytes(max_rows, max_features)));
  return over(std::make_shared<tensor::Buffer>(std::move(memory)), max_rows, max_features);
}

Result<ActivationBuffer> ActivationBuffer::over(std::shared_ptr<tensor::Buffer> memory, int64_t max_rows,
                                                int64_t max_features) {
  if (memory == nullptr || memory->size() < bytes(max_rows, max_features)) {
    return fail(Code::kInvalidArgument, "activations of {} rows x {} in too little memory", max_rows, max_features);
  }
  const auto parts = part_bytes(max_rows, max_features);
  ActivationBuffer buffer;
  buffer.max_rows_ = max_rows;
  buffer.max_features_ = max_features;
  std::byte* at = memory->data();
  const auto next = [&](size_t part) { return std::exchange(at, at + parts[part]); };
  buffer.values_ = next(0);
  buffer.scales_ = reinterpret_cast<float*>(next(1));
  buffer.sums_ = reinterpret_cast<int32_t*>(next(2));
  buffer.scaled_sums_ = reinterpret_cast<float*>(next(3));
  buffer.short_sums_ = reinterpret_cast<int16_t*>(next(4));
  buffer.memory_ = std::move(memory);
  return buffer;
}

void ActivationBuffer::prepare(int64_t rows, int64_t features, ActivationFormat format, StaticQuant quant) {
  BATON_CHECK(rows >= 0 && rows <= max_rows_ && features > 0 && features <= max_features_, "{} x {} in {} x {}", rows,
              features, max_rows_, max_features_);
  format_ = format;
  static_quant_ = quant;
  rows_ = rows;
  features_ = features;
  scales_per_row_ = sums_per_row_ = 0;
  switch (format) {
    case ActivationFormat::kF32:
      row_stride_bytes_ = features * 4;
      return;
    case ActivationFormat::kBF16:
      row_stride_bytes_ = round_up(features, 2) * 2;
      return;
    case ActivationFormat::kInt8Row:
    case ActivationFormat::kInt8Static:
      row_stride_bytes_ = round_up(features, 8);
      scales_per_row_ = sums_per_row_ = 1;
      return;
    case ActivationFormat::kInt8Group32:
    case ActivationFormat::kInt8Group256:
      break;
  }
  BATON_CHECK(features % group_of(format) == 0, "{} inputs in groups of {}", features, group_of(format));
  row_stride_bytes_ = features;
  scales_per_row_ = features / group_of(format);
  sums_per_row_ = features / 32;
}

void ActivationBuffer::convert(int64_t row, const float* x, tensor::Isa isa) {
  std::byte* values = values_ + row * row_stride_bytes_;
  float* scales = scales_ + row * scales_per_row_;
  int32_t* sums = sums_ + row * sums_per_row_;
  switch (format_) {
    case ActivationFormat::kF32:
      std::memcpy(values, x, static_cast<size_t>(features_) * 4);
      return;
    case ActivationFormat::kBF16: {
      auto* out = reinterpret_cast<uint16_t*>(values);
      pick(isa, bf16_row_ref, bf16_row_avx2, bf16_row_avx512)(x, features_, out);
      if (features_ % 2 != 0) out[features_] = 0;
      return;
    }
    case ActivationFormat::kInt8Row:
    case ActivationFormat::kInt8Static: {
      const RowCodes out{reinterpret_cast<int8_t*>(values), scales, sums};
      std::memset(values + features_, 0, static_cast<size_t>(row_stride_bytes_ - features_));
      if (format_ == ActivationFormat::kInt8Row) {
        pick(isa, int8_row_ref, int8_row_avx2, int8_row_avx512)(x, features_, out);
      } else {
        pick(isa, static_row_ref, static_row_avx2, static_row_avx512)(x, features_, static_quant_, out);
      }
      return;
    }
    case ActivationFormat::kInt8Group32:
    case ActivationFormat::kInt8Group256: {
      const QuantizedRow out{reinterpret_cast<int8_t*>(values), scales, sums, scaled_sums_ + row * (features_ / 32),
                             short_sums_ + row * (features_ / 256) * kShortSums};
      pick(isa, quantize_row_ref, quantize_row_avx2, quantize_row_avx512)(x, features_, group_of(format_), out);
      return;
    }
  }
}

void ActivationBuffer::quantize(const float* x, int64_t x_stride, int64_t rows, int64_t features,
                                ActivationFormat format, tensor::Isa isa, ComputePool& pool, StaticQuant quant) {
  quantize_part(x, x_stride, rows, features, format, isa, pool, quant, 0, rows);
}

void ActivationBuffer::quantize_part(const float* x, int64_t x_stride, int64_t rows, int64_t features,
                                     ActivationFormat format, tensor::Isa isa, ComputePool& pool, StaticQuant quant,
                                     int64_t begin, int64_t end) {
  prepare(rows, features, format, quant);
  BATON_CHECK(0 <= begin && begin <= end && end <= rows, "rows {} to {} of {}", begin, end, rows);
  pool.parallel_for(end - begin, 1, [&](int64_t from, int64_t to) {
    for (int64_t r = begin + from; r < begin + to; ++r) convert(r, x + r * x_stride, isa);
  });
}

void ActivationBuffer::quantize_heads(const float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t features,
                                      ActivationFormat format, tensor::Isa isa, ComputePool& pool) {
  prepare(rows * heads, features, format, {});
  pool.parallel_for(rows * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) convert(i, x + i % rows * x_stride + i / rows * features, isa);
  });
}

}  // namespace baton::kernels
