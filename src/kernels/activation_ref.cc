#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/activation_rows.h"
#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

uint32_t largest(const float* x, int64_t count) {
  uint32_t max_bits = 0;
  for (int64_t i = 0; i < count; ++i) max_bits = std::max(max_bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return max_bits;
}

}  // namespace

void quantize_row_ref(const float* x, int64_t features, int group, const QuantizedRow& out) {
  for (int64_t begin = 0; begin < features; begin += group) {
    const GroupScale scale = group_scale(largest(x + begin, group));
    int32_t sums16[16] = {};
    for (int i = 0; i < group; ++i) {
      // lrint rounds by the current mode: to nearest, ties to even.
      const long code = scale.inverse == 0.0f ? 0 : std::lrintf(x[begin + i] * scale.inverse);
      out.values[begin + i] = static_cast<int8_t>(code);
      sums16[i / 16] += static_cast<int32_t>(code);
    }
    out.scales[begin / group] = scale.scale;
    store_sums(sums16, begin, group, scale.scale, out);
  }
}

void int8_row_ref(const float* x, int64_t features, const RowCodes& out) {
  const GroupScale scale = group_scale(largest(x, features));
  int32_t sum = 0;
  for (int64_t i = 0; i < features; ++i) {
    const long code = scale.inverse == 0.0f ? 0 : std::lrintf(x[i] * scale.inverse);
    out.values[i] = static_cast<int8_t>(code);
    sum += static_cast<int32_t>(code);
  }
  *out.scale = scale.scale;
  *out.sum = sum;
}

// Clamped before it is rounded, which is the same, the limits being whole numbers.
void static_row_ref(const float* x, int64_t features, StaticQuant quant, const RowCodes& out) {
  const bool wild = largest(x, features) >= 0x7f800000u;
  const auto low = static_cast<float>(-128 - quant.input_offset), high = static_cast<float>(127 - quant.input_offset);
  int32_t sum = 0;
  for (int64_t i = 0; i < features; ++i) {
    long code = 0;
    if (!wild) code = std::lrintf(std::clamp(x[i] / quant.input_scale, low, high)) + quant.input_offset;
    out.values[i] = static_cast<int8_t>(code);
    sum += static_cast<int32_t>(code);
  }
  *out.scale = wild ? __builtin_nanf("") : 1.0f;
  *out.sum = sum;
}

void bf16_row_ref(const float* x, int64_t features, uint16_t* out) {
  for (int64_t i = 0; i < features; ++i) out[i] = tensor::float_to_bf16(x[i]);
}

}  // namespace baton::kernels
