// Sixteen float lanes in one AVX-512 register. Members as in vec16_portable.h, where they are explained; the same bits.
#pragma once

#define BATON_VEC16 1

#include <immintrin.h>

#include <cstdint>

#define BATON_INLINE inline __attribute__((always_inline))

namespace baton::kernels {
namespace {

struct Vec {
  static constexpr int kRows = 6;
  static constexpr int kDirect = 4;  // queries of the direct forms
  static constexpr int kCols = 4;

  __m512 v;

  static BATON_INLINE __mmask16 first_mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static BATON_INLINE Vec set(float x) { return {_mm512_set1_ps(x)}; }
  static BATON_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static BATON_INLINE Vec load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_mask(n), p)}; }
  BATON_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  BATON_INLINE void store_n(float* p, int n) const { _mm512_mask_storeu_ps(p, first_mask(n), v); }

  static BATON_INLINE Vec from_bf16(__m256i h) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
  }
  static BATON_INLINE Vec load_bf16(const uint16_t* p) {
    return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static BATON_INLINE Vec load_bf16_n(const uint16_t* p, int n) {
    return from_bf16(_mm256_maskz_loadu_epi16(first_mask(n), p));
  }
  static BATON_INLINE Vec load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static BATON_INLINE Vec load_f16_n(const uint16_t* p, int n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_mask(n), p))};
  }
  static BATON_INLINE Vec load_i8(const uint8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  // The magnitude's bits, moved, are an f16 of 2^-8 times the value, subnormals too; NaN is what remains.
  static BATON_INLINE Vec load_e4m3(const uint8_t* p) {
    const __m256i c = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(c, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
    const __m256i magnitude = _mm256_and_si256(c, _mm256_set1_epi16(0x7f));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
    const __m256i signed_nan = _mm256_or_si256(half, _mm256_set1_epi16(0x7e00));
    return {_mm512_mul_ps(_mm512_cvtph_ps(_mm256_mask_mov_epi16(half, nan, signed_nan)), _mm512_set1_ps(256.0f))};
  }
  // Integer rounding: vcvtneps2bf16 would flush subnormals.
  BATON_INLINE void store_bf16_n(uint16_t* p, int n) const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i result = _mm512_mask_mov_epi32(rounded, nan, quiet);
    _mm256_mask_storeu_epi16(p, first_mask(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16)));
  }
  BATON_INLINE void store_f16_n(uint16_t* p, int n) const {
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN));
    const __m512i quiet = _mm512_or_si512(sign, _mm512_set1_epi32(0x7fc00000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512 clean = _mm512_mask_mov_ps(v, nan, _mm512_castsi512_ps(quiet));
    _mm256_mask_storeu_epi16(p, first_mask(n), _mm512_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  BATON_INLINE Vec low_bf16() const { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16))}; }
  BATON_INLINE Vec high_bf16() const {
    return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(-65536)))};
  }

  static BATON_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  friend BATON_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend BATON_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend BATON_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend BATON_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static BATON_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static BATON_INLINE Vec keep_n(Vec a, int n, float x) {
    return {_mm512_mask_mov_ps(_mm512_set1_ps(x), first_mask(n), a.v)};
  }
  BATON_INLINE float first() const { return _mm512_cvtss_f32(v); }

  BATON_INLINE float reduce_add() const {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  BATON_INLINE float reduce_max() const {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  BATON_INLINE Vec swap_pairs() const { return {_mm512_permute_ps(v, 0xb1)}; }
  static BATON_INLINE Vec load_twice(const float* p, bool negate_even) {
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512 twice = _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
    if (!negate_even) return {twice};
    return {_mm512_mask_xor_ps(twice, 0x5555, twice, _mm512_set1_ps(-0.0f))};
  }

  static BATON_INLINE void transpose(Vec (&rows)[16]) {
    __m512 t[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
      t[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    __m512 u[16];
    for (int i = 0; i < 16; i += 4) {
      u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    // u[4g + c] holds columns c, c + 4, c + 8, c + 12 of rows 4g .. 4g + 3, one per 128-bit part.
    for (int c = 0; c < 4; ++c) {
      const __m512 a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
      const __m512 b = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
      const __m512 d = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
      const __m512 e = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
      rows[c].v = _mm512_shuffle_f32x4(a, d, 0x88);
      rows[c + 8].v = _mm512_shuffle_f32x4(a, d, 0xdd);
      rows[c + 4].v = _mm512_shuffle_f32x4(b, e, 0x88);
      rows[c + 12].v = _mm512_shuffle_f32x4(b, e, 0xdd);
    }
  }

  static BATON_INLINE Vec exp_finish(Vec x, Vec y, Vec rounded, float low, float high) {
    // scalef rounds once, as the two exact-then-rounded products of the portable form do.
    __m512 r = _mm512_scalef_ps(y.v, _mm512_sub_ps(rounded.v, _mm512_set1_ps(0x1.8p+23f)));
    r = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(low), _CMP_NLT_UQ), r);
    r = _mm512_mask_mov_ps(r, _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(high), _CMP_GT_OQ),
                           _mm512_set1_ps(__builtin_inff()));
    return {_mm512_mask_add_ps(r, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), x.v, x.v)};
  }

  static BATON_INLINE void log_split(Vec x, Vec& e, Vec& m) {
    const __mmask16 small = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __m512i bits = _mm512_castps_si512(_mm512_mask_mul_ps(x.v, small, x.v, _mm512_set1_ps(0x1p+25f)));
    const __m512i exponent = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f3504f3)), 23);
    e.v = _mm512_add_ps(_mm512_cvtepi32_ps(exponent), _mm512_maskz_mov_ps(small, _mm512_set1_ps(-25.0f)));
    m.v = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(exponent, 23)));
  }
  static BATON_INLINE Vec log_finish(Vec x, Vec y) {
    const __m512 inf = _mm512_set1_ps(__builtin_inff());
    const __m512 zero = _mm512_setzero_ps();
    __m512 r = _mm512_mask_mov_ps(y.v, _mm512_cmp_ps_mask(x.v, zero, _CMP_EQ_OQ), _mm512_sub_ps(zero, inf));
    r = _mm512_mask_mov_ps(r, _mm512_cmp_ps_mask(x.v, inf, _CMP_EQ_OQ), inf);
    r = _mm512_mask_mov_ps(r, _mm512_cmp_ps_mask(x.v, zero, _CMP_LT_OQ),
                           _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
    return {_mm512_mask_add_ps(r, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), x.v, x.v)};
  }
};

}  // namespace
}  // namespace baton::kernels
