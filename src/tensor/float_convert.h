// bf16 and f16 to and from float, one value at a time, round to nearest even: the reference for every vector form.
#pragma once

#include <bit>
#include <cstdint>

namespace baton::tensor {

inline float bf16_to_float(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // a quiet NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_float(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000u) << 16;
  const uint32_t exponent = (value >> 10) & 0x1fu;
  const uint32_t mantissa = value & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(subnormal) | sign);
}

inline uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: the float unit rounds the subnormal for us
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

// e4m3fn (OCP FP8): 4 exponent bits of bias 7, no infinities, NaN 0x7f and 0xff, largest 448.
inline float e4m3_to_float(uint8_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x80u) << 24;
  const uint32_t exponent = (value >> 3) & 0xfu;
  const uint32_t mantissa = value & 7u;
  if ((value & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
  const float subnormal = static_cast<float>(mantissa) * 0x1p-9f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(subnormal) | sign);
}

// Round to nearest even, saturating at 448 (as PyTorch's and vLLM's casts of finite values after a clamp); NaN stays
// NaN.
inline uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and above
  if (magnitude < 0x3c800000u) {  // below 2^-6: the float unit rounds the subnormal for us
    const float shifted = std::bit_cast<float>(magnitude) + 16384.0f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  const uint32_t odd = (magnitude >> 20) & 1u;
  return static_cast<uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20));
}

// 2^(value - 127); 255 is NaN. 2^-127 is subnormal.
inline float e8m0_to_float(uint8_t value) {
  if (value == 255) return std::bit_cast<float>(0x7fc00000u);
  if (value == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 23);
}

// e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign in bit 3, doubled: an exact int8.
inline int e2m1_doubled(uint8_t code) {
  constexpr int8_t kMagnitudes[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  return (code & 8u) != 0 ? -kMagnitudes[code & 7u] : kMagnitudes[code & 7u];
}

}  // namespace baton::tensor
