// How elements of a cache become floats and back, sixteen at a time, over the lane type Vec of the including file.
//
// Rounding, the same bits on every instruction set:
//   f16, bf16  nearest, ties to even
//   fp8        scale = max(max|x| / 448, smallest normal float); code = e4m3(x / scale), nearest, ties to even
//   i8         scale = max(max|x| / 127, smallest normal float); code = x / scale, nearest, ties to even, within +-127
// Divisions are fp32 and rounded once. A value is read as code * scale, one fp32 product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

#ifndef BATON_VEC16
#include "kernels/vec16_portable.h"  // alone: the portable lanes
#endif

namespace baton::kernels {
namespace {

template <tensor::DType kType>
inline constexpr bool kIsCode = kType == tensor::DType::kF8E4M3 || kType == tensor::DType::kI8;

// n elements from `index` on, the other lanes zero. Codes are read without their scale.
template <tensor::DType kType>
inline __attribute__((always_inline)) Vec load_cache(const std::byte* row, int index, int n) {
  if constexpr (kType == tensor::DType::kF32) {
    const float* p = reinterpret_cast<const float*>(row) + index;
    return n == 16 ? Vec::load(p) : Vec::load_n(p, n);
  } else if constexpr (kIsCode<kType>) {
    const auto* p = reinterpret_cast<const uint8_t*>(row) + index;
    uint8_t copy[16] = {};
    if (n != 16) {
      for (int i = 0; i < n; ++i) copy[i] = p[i];
      p = copy;
    }
    return kType == tensor::DType::kI8 ? Vec::load_i8(p) : Vec::load_e4m3(p);
  } else {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(row) + index;
    if constexpr (kType == tensor::DType::kBF16)
      return n == 16 ? Vec::load_bf16(p) : Vec::load_bf16_n(p, n);
    else
      return n == 16 ? Vec::load_f16(p) : Vec::load_f16_n(p, n);
  }
}

// A type as an argument, and the call of f with the cache's.
template <tensor::DType kType>
struct TypeTag {};
template <typename F>
inline __attribute__((always_inline)) void with_cache_type(tensor::DType dtype, F f) {
  switch (dtype) {
    case tensor::DType::kF32:
      return f(TypeTag<tensor::DType::kF32>{});
    case tensor::DType::kF16:
      return f(TypeTag<tensor::DType::kF16>{});
    case tensor::DType::kI8:
      return f(TypeTag<tensor::DType::kI8>{});
    case tensor::DType::kF8E4M3:
      return f(TypeTag<tensor::DType::kF8E4M3>{});
    default:
      return f(TypeTag<tensor::DType::kBF16>{});
  }
}

// dst[i] = value i of a row of `count`, rounded to f32, f16 or bf16.
inline void store_plain(const float* src, int count, tensor::DType dtype, std::byte* dst) {
  for (int i = 0; i < count; i += 16) {
    const int n = count - i < 16 ? count - i : 16;
    const Vec v = n == 16 ? Vec::load(src + i) : Vec::load_n(src + i, n);
    if (dtype == tensor::DType::kF32)
      v.store_n(reinterpret_cast<float*>(dst) + i, n);
    else if (dtype == tensor::DType::kBF16)
      v.store_bf16_n(reinterpret_cast<uint16_t*>(dst) + i, n);
    else
      v.store_f16_n(reinterpret_cast<uint16_t*>(dst) + i, n);
  }
}

inline float bits_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t float_to_bits(float x) { return __builtin_bit_cast(uint32_t, x); }

// As tensor::float_to_e4m3, without branches.
inline __attribute__((always_inline)) uint8_t encode_e4m3(float x) {
  const uint32_t bits = float_to_bits(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const uint32_t small = float_to_bits(bits_to_float(magnitude) + 16384.0f) - 0x46800000u;
  uint32_t code = magnitude < 0x3c800000u ? small : normal;
  code = magnitude >= 0x43e00000u ? 0x7eu : code;
  code = magnitude > 0x7f800000u ? 0x7fu : code;
  return static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
}

// NaN becomes -127.
inline __attribute__((always_inline)) uint8_t encode_i8(float x) {
  const float low = x > -127.0f ? x : -127.0f;
  const float clamped = low < 127.0f ? low : 127.0f;
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  return static_cast<uint8_t>(float_to_bits(clamped + 0x1.8p+23f) & 0xffu);
}

inline float largest_magnitude(const float* x, int count) {
  Vec top = Vec::set(0);
  for (int i = 0; i < count; i += 16) {
    const int n = count - i < 16 ? count - i : 16;
    const Vec v = n == 16 ? Vec::load(x + i) : Vec::load_n(x + i, n);
    top = Vec::max(top, Vec::max(v, Vec::set(0) - v));
  }
  return top.reduce_max();
}

inline float code_scale(float largest, tensor::DType dtype) {
  const float scale = largest / (dtype == tensor::DType::kI8 ? 127.0f : 448.0f);
  return scale > 0x1p-126f ? scale : 0x1p-126f;
}

inline void store_codes(const float* x, int count, float scale, tensor::DType dtype, std::byte* dst) {
  auto* codes = reinterpret_cast<uint8_t*>(dst);
  for (int i = 0; i < count; i += 16) {
    const int n = count - i < 16 ? count - i : 16;
    float ratio[16];
    (Vec::load_n(x + i, n) / Vec::set(scale)).store(ratio);
    uint8_t lane[16];
    if (dtype == tensor::DType::kI8) {
      for (int j = 0; j < 16; ++j) lane[j] = encode_i8(ratio[j]);
    } else {
      for (int j = 0; j < 16; ++j) lane[j] = encode_e4m3(ratio[j]);
    }
    __builtin_memcpy(codes + i, lane, static_cast<size_t>(n));
  }
}

}  // namespace
}  // namespace baton::kernels
