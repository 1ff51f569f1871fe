#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/activation_rows.h"
#include "tensor/float_convert.h"

namespace baton::kernels {

void quantize_row_ref(const float* x, int64_t features, int group, const QuantizedRow& out) {
  for (int64_t begin = 0; begin < features; begin += group) {
    uint32_t max_bits = 0;
    for (int i = 0; i < group; ++i) max_bits = std::max(max_bits, std::bit_cast<uint32_t>(x[begin + i]) & 0x7fffffffu);
    const GroupScale scale = group_scale(max_bits);
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

void bf16_row_ref(const float* x, int64_t features, uint16_t* out) {
  for (int64_t i = 0; i < features; ++i) out[i] = tensor::float_to_bf16(x[i]);
}

}  // namespace baton::kernels
