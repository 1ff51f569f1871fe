// Sixteen float lanes in two AVX2 registers. Members as in vec16_portable.h, where they are explained; the same bits.
#pragma once

#define BATON_VEC16 1

#include <immintrin.h>

#include <cstdint>

#define BATON_INLINE inline __attribute__((always_inline))

namespace baton::kernels {
namespace {

struct Vec {
  static constexpr int kRows = 2;
  static constexpr int kDirect = 2;  // queries of the direct forms
  static constexpr int kCols = 2;

  __m256 a, b;  // lanes 0-7, 8-15

  static BATON_INLINE __m256i first_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static BATON_INLINE Vec set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static BATON_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static BATON_INLINE Vec load_n(const float* p, int n) {
    return {_mm256_maskload_ps(p, first_mask(n)), _mm256_maskload_ps(p + 8, first_mask(n - 8))};
  }
  BATON_INLINE void store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  BATON_INLINE void store_n(float* p, int n) const {
    _mm256_maskstore_ps(p, first_mask(n), a);
    _mm256_maskstore_ps(p + 8, first_mask(n - 8), b);
  }

  static BATON_INLINE __m128i load_half(const uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static BATON_INLINE __m256 widen_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
  static BATON_INLINE Vec load_bf16(const uint16_t* p) {
    return {widen_bf16(load_half(p)), widen_bf16(load_half(p + 8))};
  }
  static BATON_INLINE Vec load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(load_half(p)), _mm256_cvtph_ps(load_half(p + 8))};
  }
  static BATON_INLINE Vec load_bf16_n(const uint16_t* p, int n) {
    alignas(32) uint16_t copy[16] = {};
    for (int i = 0; i < n; ++i) copy[i] = p[i];
    return load_bf16(copy);
  }
  static BATON_INLINE Vec load_f16_n(const uint16_t* p, int n) {
    alignas(32) uint16_t copy[16] = {};
    for (int i = 0; i < n; ++i) copy[i] = p[i];
    return load_f16(copy);
  }
  static BATON_INLINE __m256 widen_i8(__m128i c) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(c)); }
  static BATON_INLINE Vec load_i8(const uint8_t* p) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {widen_i8(c), widen_i8(_mm_srli_si128(c, 8))};
  }
  // The magnitude's bits, moved, are an f16 of 2^-8 times the value, subnormals too; NaN is what remains.
  static BATON_INLINE __m256 widen_e4m3(__m128i codes) {
    const __m128i c = _mm_cvtepi8_epi16(codes);
    const __m128i half = _mm_and_si128(_mm_slli_epi16(c, 7), _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
    const __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(c, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7f));
    const __m128i fixed = _mm_or_si128(half, _mm_and_si128(nan, _mm_set1_epi16(0x7e00)));
    return _mm256_mul_ps(_mm256_cvtph_ps(fixed), _mm256_set1_ps(256.0f));
  }
  static BATON_INLINE Vec load_e4m3(const uint8_t* p) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {widen_e4m3(c), widen_e4m3(_mm_srli_si128(c, 8))};
  }
  static BATON_INLINE void store_halves(__m128i low, __m128i high, uint16_t* p, int n) {
    alignas(32) uint16_t copy[16];
    uint16_t* to = n == 16 ? p : copy;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), high);
    if (n != 16) {
      for (int i = 0; i < n; ++i) p[i] = copy[i];
    }
  }
  static BATON_INLINE __m128i narrow_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  BATON_INLINE void store_bf16_n(uint16_t* p, int n) const { store_halves(narrow_bf16(a), narrow_bf16(b), p, n); }
  static BATON_INLINE __m128i narrow_f16(__m256 x) {
    const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
    const __m256 quiet = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
    const __m256 clean = _mm256_blendv_ps(x, quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  BATON_INLINE void store_f16_n(uint16_t* p, int n) const { store_halves(narrow_f16(a), narrow_f16(b), p, n); }

  BATON_INLINE Vec low_bf16() const {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(b), 16))};
  }
  BATON_INLINE Vec high_bf16() const {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(-65536));
    return {_mm256_and_ps(a, mask), _mm256_and_ps(b, mask)};
  }

  static BATON_INLINE Vec fma(Vec x, Vec y, Vec z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  friend BATON_INLINE Vec operator+(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  friend BATON_INLINE Vec operator-(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  friend BATON_INLINE Vec operator*(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  friend BATON_INLINE Vec operator/(Vec x, Vec y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static BATON_INLINE Vec max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static BATON_INLINE Vec keep_n(Vec x, int n, float other) {
    const __m256 o = _mm256_set1_ps(other);
    return {_mm256_blendv_ps(o, x.a, _mm256_castsi256_ps(first_mask(n))),
            _mm256_blendv_ps(o, x.b, _mm256_castsi256_ps(first_mask(n - 8)))};
  }
  BATON_INLINE float first() const { return _mm256_cvtss_f32(a); }

  BATON_INLINE float reduce_add() const {
    const __m256 s = _mm256_add_ps(a, b);
    const __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    const __m128 u = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
  }
  BATON_INLINE float reduce_max() const {
    const __m256 s = _mm256_max_ps(a, b);
    const __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    const __m128 u = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(u, _mm_movehdup_ps(u)));
  }

  BATON_INLINE Vec swap_pairs() const { return {_mm256_permute_ps(a, 0xb1), _mm256_permute_ps(b, 0xb1)}; }
  static BATON_INLINE Vec load_twice(const float* p, bool negate_even) {
    const __m256 x = _mm256_loadu_ps(p);
    Vec r = {_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
             _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
    if (!negate_even) return r;
    const __m256 even = _mm256_setr_ps(-0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f, 0);
    return {_mm256_xor_ps(r.a, even), _mm256_xor_ps(r.b, even)};
  }

  static BATON_INLINE void transpose8(__m256 (&r)[8]) {
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    __m256 u[8];
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
      r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
  }
  static BATON_INLINE void transpose(Vec (&rows)[16]) {
    __m256 q[2][2][8];  // [row half][column half]
    for (int i = 0; i < 16; ++i) {
      q[i / 8][0][i % 8] = rows[i].a;
      q[i / 8][1][i % 8] = rows[i].b;
    }
    for (auto& half : q) {
      transpose8(half[0]);
      transpose8(half[1]);
    }
    for (int i = 0; i < 16; ++i) {
      rows[i].a = q[0][i / 8][i % 8];
      rows[i].b = q[1][i / 8][i % 8];
    }
  }

  static BATON_INLINE __m256 exp_finish8(__m256 x, __m256 y, __m256 rounded, float low, float high) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(rounded), _mm256_set1_epi32(0x4b400000));
    const __m256i half = _mm256_srai_epi32(n, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i one = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i two = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
    __m256 r = _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(one)), _mm256_castsi256_ps(two));
    r = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(low), _CMP_LT_OQ), r);
    r = _mm256_blendv_ps(r, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x, _mm256_set1_ps(high), _CMP_GT_OQ));
    return _mm256_blendv_ps(r, _mm256_add_ps(x, x), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static BATON_INLINE Vec exp_finish(Vec x, Vec y, Vec rounded, float low, float high) {
    return {exp_finish8(x.a, y.a, rounded.a, low, high), exp_finish8(x.b, y.b, rounded.b, low, high)};
  }

  static BATON_INLINE void log_split8(__m256 x, __m256& e, __m256& m) {
    const __m256 small = _mm256_cmp_ps(x, _mm256_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __m256i bits = _mm256_castps_si256(_mm256_blendv_ps(x, _mm256_mul_ps(x, _mm256_set1_ps(0x1p+25f)), small));
    const __m256i exponent = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
    e = _mm256_add_ps(_mm256_cvtepi32_ps(exponent), _mm256_and_ps(small, _mm256_set1_ps(-25.0f)));
    m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(exponent, 23)));
  }
  static BATON_INLINE void log_split(Vec x, Vec& e, Vec& m) {
    log_split8(x.a, e.a, m.a);
    log_split8(x.b, e.b, m.b);
  }
  static BATON_INLINE __m256 log_finish8(__m256 x, __m256 y) {
    const __m256 inf = _mm256_set1_ps(__builtin_inff());
    const __m256 zero = _mm256_setzero_ps();
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    __m256 r = _mm256_blendv_ps(y, _mm256_sub_ps(zero, inf), _mm256_cmp_ps(x, zero, _CMP_EQ_OQ));
    r = _mm256_blendv_ps(r, inf, _mm256_cmp_ps(x, inf, _CMP_EQ_OQ));
    r = _mm256_blendv_ps(r, nan, _mm256_cmp_ps(x, zero, _CMP_LT_OQ));
    return _mm256_blendv_ps(r, _mm256_add_ps(x, x), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static BATON_INLINE Vec log_finish(Vec x, Vec y) { return {log_finish8(x.a, y.a), log_finish8(x.b, y.b)}; }
};

}  // namespace
}  // namespace baton::kernels
