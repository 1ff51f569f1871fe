// Sixteen float lanes in plain C++: the reference for vec16_avx2.h and vec16_avx512.h, which have the same members.
//
// Only *_ref.cc files include this. Everything is in an unnamed namespace on purpose: code compiled for one instruction
// set must never be merged with another file's by the linker.
#pragma once

#define BATON_VEC16 1

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

struct Vec {
  // Register blocking of attention: rows and vectors held at once.
  static constexpr int kRows = 1;
  static constexpr int kDirect = 1;  // queries of the direct forms
  static constexpr int kCols = 1;

  float lane[16];

  template <typename F>
  static Vec make(F f) {
    Vec v;
    for (int i = 0; i < 16; ++i) v.lane[i] = f(i);
    return v;
  }
  static Vec set(float x) {
    return make([&](int) { return x; });
  }
  static Vec load(const float* p) {
    return make([&](int i) { return p[i]; });
  }
  // The first n < 16 lanes; the others are zero.
  static Vec load_n(const float* p, int n) {
    return make([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  void store(float* p) const { store_n(p, 16); }
  void store_n(float* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = lane[i];
  }

  static Vec load_bf16(const uint16_t* p) {
    return make([&](int i) { return tensor::bf16_to_float(p[i]); });
  }
  static Vec load_bf16_n(const uint16_t* p, int n) {
    return make([&](int i) { return i < n ? tensor::bf16_to_float(p[i]) : 0.0f; });
  }
  static Vec load_f16(const uint16_t* p) {
    return make([&](int i) { return tensor::f16_to_float(p[i]); });
  }
  static Vec load_f16_n(const uint16_t* p, int n) {
    return make([&](int i) { return i < n ? tensor::f16_to_float(p[i]) : 0.0f; });
  }
  // Sixteen codes as floats: int8; e4m3.
  static Vec load_i8(const uint8_t* p) {
    return make([&](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
  }
  static Vec load_e4m3(const uint8_t* p) {
    return make([&](int i) { return tensor::e4m3_to_float(p[i]); });
  }
  void store_bf16_n(uint16_t* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = tensor::float_to_bf16(lane[i]);
  }
  void store_f16_n(uint16_t* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = tensor::float_to_f16(lane[i]);
  }

  // Each lane as two bf16: the lower (first in memory), the upper.
  Vec low_bf16() const {
    return make([&](int i) { return std::bit_cast<float>(std::bit_cast<uint32_t>(lane[i]) << 16); });
  }
  Vec high_bf16() const {
    return make([&](int i) { return std::bit_cast<float>(std::bit_cast<uint32_t>(lane[i]) & 0xffff0000u); });
  }

  // a * b + c, rounded once.
  static Vec fma(Vec a, Vec b, Vec c) {
    return make([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  friend Vec operator+(Vec a, Vec b) {
    return make([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend Vec operator-(Vec a, Vec b) {
    return make([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  friend Vec operator*(Vec a, Vec b) {
    return make([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  friend Vec operator/(Vec a, Vec b) {
    return make([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static Vec max(Vec a, Vec b) {
    return make([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  // Lanes below n of a, the others x.
  static Vec keep_n(Vec a, int n, float x) {
    return make([&](int i) { return i < n ? a.lane[i] : x; });
  }
  float first() const { return lane[0]; }

  // Trees over the lanes: (j, j + 8), then (j, j + 4), (j, j + 2), (0, 1).
  float reduce_add() const {
    Vec v = *this;
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) v.lane[i] = v.lane[i] + v.lane[i + half];
    }
    return v.lane[0];
  }
  float reduce_max() const {
    Vec v = *this;
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) v.lane[i] = v.lane[i] > v.lane[i + half] ? v.lane[i] : v.lane[i + half];
    }
    return v.lane[0];
  }

  // Rotary pairs (2i, 2i + 1): lanes swapped in each pair.
  Vec swap_pairs() const {
    return make([&](int i) { return lane[i ^ 1]; });
  }
  // p[0..7], each twice; even lanes negated if asked.
  static Vec load_twice(const float* p, bool negate_even) {
    return make([&](int i) { return negate_even && i % 2 == 0 ? -p[i / 2] : p[i / 2]; });
  }

  static void transpose(Vec (&rows)[16]) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < i; ++j) std::swap(rows[i].lane[j], rows[j].lane[i]);
    }
  }

  // y * 2^n for the n held in the low bits of `rounded`; 0 for x < low, inf for x > high, NaN for NaN.
  static Vec exp_finish(Vec x, Vec y, Vec rounded, float low, float high) {
    return make([&](int i) {
      if (std::isnan(x.lane[i])) return x.lane[i] + x.lane[i];
      if (x.lane[i] < low) return 0.0f;
      if (x.lane[i] > high) return HUGE_VALF;
      const int n = static_cast<int>(std::bit_cast<uint32_t>(rounded.lane[i]) - 0x4b400000u);
      const int half = n >> 1;
      const float a = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
      const float b = std::bit_cast<float>(static_cast<uint32_t>(n - half + 127) << 23);
      return y.lane[i] * a * b;
    });
  }

  // x = 2^e * m, sqrt(1/2) <= m < sqrt(2), for positive finite x; subnormals are scaled first.
  static void log_split(Vec x, Vec& e, Vec& m) {
    for (int i = 0; i < 16; ++i) {
      const bool small = x.lane[i] < 0x1p-126f;
      const uint32_t bits = std::bit_cast<uint32_t>(small ? x.lane[i] * 0x1p+25f : x.lane[i]);
      const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
      e.lane[i] = static_cast<float>(exponent) + (small ? -25.0f : 0.0f);
      m.lane[i] = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23));
    }
  }
  static Vec log_finish(Vec x, Vec y) {
    return make([&](int i) {
      if (x.lane[i] == 0) return -HUGE_VALF;
      if (x.lane[i] == HUGE_VALF) return HUGE_VALF;
      if (x.lane[i] < 0) return std::bit_cast<float>(0x7fc00000u);
      if (std::isnan(x.lane[i])) return x.lane[i] + x.lane[i];
      return y.lane[i];
    });
  }
};

}  // namespace
}  // namespace baton::kernels
