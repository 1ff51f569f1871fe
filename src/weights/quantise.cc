#include "weights/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float_convert.h"
#include "weights/k_quant_scales.h"

namespace baton::weights {
namespace {

using tensor::DType;

// Writes the f16 nearest to `value` and returns what a reader will see.
float put_f16(uint8_t* out, float value) {
  const uint16_t bits = tensor::float_to_f16(value);
  std::memcpy(out, &bits, 2);
  return tensor::f16_to_float(bits);
}

float inverse(float value) { return value == 0.0f ? 0.0f : 1.0f / value; }

// Truncated and held in [0, top]; safe for any float.
uint8_t level(float value, int top) {
  if (!(value > 0.0f)) return 0;
  return static_cast<uint8_t>(value >= static_cast<float>(top) ? top : static_cast<int>(value));
}

// Rounded half away from zero and held in [bottom, top]; safe for any float.
int rounded(float value, int bottom, int top) {
  if (!(value > static_cast<float>(bottom))) return bottom;
  return value >= static_cast<float>(top) ? top : static_cast<int>(std::round(value));
}

// The element farthest from zero, with its sign; the first of equals.
float farthest(const float* x, int count) {
  float found = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (std::abs(x[i]) > std::abs(found)) found = x[i];
  }
  return found;
}

void put_nibbles_and_fifth_bits(const std::array<uint8_t, 32>& q, uint8_t* fifth_bits, uint8_t* nibbles) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(q[static_cast<size_t>(i)] >> 4) << i;
  if (fifth_bits != nullptr) std::memcpy(fifth_bits, &high, 4);
  for (size_t i = 0; i < 16; ++i) nibbles[i] = static_cast<uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
}

// Q4_0 and Q5_0: levels around zero; the farthest element takes the most negative level, so it is exact.
void symmetric(const float* x, uint8_t* out, int half_levels) {
  const float d = farthest(x, 32) / static_cast<float>(-half_levels);
  const float id = inverse(d);
  std::array<uint8_t, 32> q{};
  for (size_t i = 0; i < 32; ++i) {
    q[i] = level(x[i] * id + (static_cast<float>(half_levels) + 0.5f), 2 * half_levels - 1);
  }
  put_f16(out, d);
  const bool five_bits = half_levels == 16;
  put_nibbles_and_fifth_bits(q, five_bits ? out + 2 : nullptr, five_bits ? out + 6 : out + 2);
}

// Q4_1 and Q5_1: levels between the block's minimum and maximum.
void with_min(const float* x, uint8_t* out, int top) {
  const auto [min, max] = std::minmax_element(x, x + 32);
  const float d = (*max - *min) / static_cast<float>(top);
  const float id = inverse(d);
  std::array<uint8_t, 32> q{};
  for (size_t i = 0; i < 32; ++i) q[i] = level((x[i] - *min) * id + 0.5f, top);
  put_f16(out, d);
  put_f16(out + 2, *min);
  const bool five_bits = top == 31;
  put_nibbles_and_fifth_bits(q, five_bits ? out + 4 : nullptr, five_bits ? out + 8 : out + 4);
}

void q8_0(const float* x, uint8_t* out) {
  const float d = std::abs(farthest(x, 32)) / 127.0f;
  const float id = inverse(d);
  put_f16(out, d);
  for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<uint8_t>(rounded(x[i] * id, -127, 127));
}

// Q4_K and Q5_K. Each sub-block of 32 spans [-min, -min + top * scale] with min >= 0; the eight scales and minima are
// themselves 6-bit levels of the super-block's d and dmin, and elements are rounded with what those levels decode to.
void q4_k_or_q5_k(const float* x, uint8_t* out, bool five_bits) {
  const int top = five_bits ? 31 : 15;
  std::array<float, 8> scales{};
  std::array<float, 8> mins{};
  for (size_t sub = 0; sub < 8; ++sub) {
    const auto [min, max] = std::minmax_element(x + sub * 32, x + sub * 32 + 32);
    mins[sub] = std::max(0.0f, -*min);
    scales[sub] = (std::max(*max, -mins[sub]) + mins[sub]) / static_cast<float>(top);
  }
  const float d = put_f16(out, *std::ranges::max_element(scales) / 63.0f);
  const float dmin = put_f16(out + 2, *std::ranges::max_element(mins) / 63.0f);
  std::memset(out + 4, 0, five_bits ? 172 : 140);
  uint8_t* high = out + 16;
  uint8_t* low = five_bits ? out + 48 : out + 16;
  for (int sub = 0; sub < 8; ++sub) {
    const auto at = static_cast<size_t>(sub);
    const ScaleAndMin packed{static_cast<uint8_t>(rounded(scales[at] * inverse(d), 0, 63)),
                             static_cast<uint8_t>(rounded(mins[at] * inverse(dmin), 0, 63))};
    pack_k_scale(out + 4, sub, packed);
    const float step = inverse(d * static_cast<float>(packed.scale));
    const float offset = dmin * static_cast<float>(packed.min);
    for (int i = 0; i < 32; ++i) {
      const int q = rounded((x[sub * 32 + i] + offset) * step, 0, top);
      low[sub / 2 * 32 + i] |= static_cast<uint8_t>((q & 15) << (sub % 2 * 4));
      if (five_bits) high[i] |= static_cast<uint8_t>(q >> 4 << sub);
    }
  }
}

// Q6_K. Each sub-block of 16 has an int8 scale in units of the super-block's d; the farthest element of a sub-block
// takes level -32, the largest scale -128.
void q6_k(const float* x, uint8_t* out) {
  std::array<float, 16> scales{};
  for (size_t sub = 0; sub < 16; ++sub) scales[sub] = farthest(x + sub * 16, 16) / -32.0f;
  std::memset(out, 0, 210);
  const float d = put_f16(out + 208, farthest(scales.data(), 16) / -128.0f);
  for (int i = 0; i < 256; ++i) {
    const int scale = rounded(scales[static_cast<size_t>(i / 16)] * inverse(d), -128, 127);
    out[192 + i / 16] = static_cast<uint8_t>(scale);
    const int q = rounded(x[i] * inverse(d * static_cast<float>(scale)), -32, 31) + 32;
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    out[half * 64 + quarter % 2 * 32 + i % 32] |= static_cast<uint8_t>((q & 15) << (quarter / 2 * 4));
    out[128 + half * 32 + i % 32] |= static_cast<uint8_t>(q >> 4 << (2 * quarter));
  }
}

void quantise_block(DType dtype, const float* x, uint8_t* out) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, x, 4);
      return;
    case DType::kF16:
      put_f16(out, *x);
      return;
    case DType::kBF16: {
      const uint16_t bits = tensor::float_to_bf16(*x);
      std::memcpy(out, &bits, 2);
      return;
    }
    case DType::kQ4_0:
      return symmetric(x, out, 8);
    case DType::kQ5_0:
      return symmetric(x, out, 16);
    case DType::kQ4_1:
      return with_min(x, out, 15);
    case DType::kQ5_1:
      return with_min(x, out, 31);
    case DType::kQ8_0:
      return q8_0(x, out);
    case DType::kQ4_K:
      return q4_k_or_q5_k(x, out, false);
    case DType::kQ5_K:
      return q4_k_or_q5_k(x, out, true);
    case DType::kQ6_K:
      return q6_k(x, out);
    default:
      break;
  }
  BATON_CHECK(false, "{} is not a weight format", tensor::dtype_name(dtype));
}

}  // namespace

void quantise_row(DType dtype, const float* x, int64_t elements, std::byte* out) {
  const auto& info = tensor::dtype_info(dtype);
  BATON_CHECK(elements % info.block_elements == 0, "{} elements of {}", elements, info.name);
  auto* block = reinterpret_cast<uint8_t*>(out);
  for (int64_t i = 0; i < elements; i += info.block_elements) {
    quantise_block(dtype, x + i, block);
    block += info.block_bytes;
  }
}

std::vector<std::byte> quantise(DType dtype, std::span<const float> x, int64_t row_elements) {
  const auto elements = static_cast<int64_t>(x.size());
  BATON_CHECK(row_elements > 0 && elements % row_elements == 0, "{} elements in rows of {}", elements, row_elements);
  const int64_t row_bytes = tensor::dtype_bytes(dtype, row_elements);
  std::vector<std::byte> out(static_cast<size_t>(elements / row_elements * row_bytes));
  for (int64_t row = 0; row < elements / row_elements; ++row) {
    quantise_row(dtype, x.data() + row * row_elements, row_elements, out.data() + row * row_bytes);
  }
  return out;
}

}  // namespace baton::weights
