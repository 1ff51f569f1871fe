#include <immintrin.h>

#include "kernels/activation_rows.h"

namespace baton::kernels {
namespace {

// The first 16 or fewer of `left` values.
[[gnu::always_inline]] inline __mmask16 mask_of(int64_t left) {
  return left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
}

uint32_t largest(const float* x, int64_t features) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < features; i += 16) {
    const __m512i bits = _mm512_maskz_loadu_epi32(mask_of(features - i), x + i);
    most = _mm512_max_epi32(most, _mm512_and_si512(bits, magnitude));
  }
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(most));
}

}  // namespace

void int8_row_avx512(const float* x, int64_t features, const RowCodes& out) {
  const GroupScale scale = group_scale(largest(x, features));
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < features; i += 16) {
    const __mmask16 mask = mask_of(features - i);
    const __mmask16 keep = scale.inverse == 0.0f ? 0 : mask;  // NaN times 0 is not 0
    const __m512i codes = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse));
    sum = _mm512_add_epi32(sum, codes);
    _mm_mask_storeu_epi8(out.values + i, mask, _mm512_cvtepi32_epi8(codes));
  }
  *out.scale = scale.scale;
  *out.sum = _mm512_reduce_add_epi32(sum);
}

void static_row_avx512(const float* x, int64_t features, StaticQuant quant, const RowCodes& out) {
  const bool wild = largest(x, features) >= 0x7f800000u;
  const __m512 input_scale = _mm512_set1_ps(quant.input_scale);
  const __m512 low = _mm512_set1_ps(static_cast<float>(-128 - quant.input_offset));
  const __m512 high = _mm512_set1_ps(static_cast<float>(127 - quant.input_offset));
  const __m512i offset = _mm512_set1_epi32(quant.input_offset);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < features; i += 16) {
    const __mmask16 mask = mask_of(features - i);
    const __m512 value = _mm512_div_ps(_mm512_maskz_loadu_ps(mask, x + i), input_scale);
    const __m512i codes = _mm512_maskz_add_epi32(
        wild ? 0 : mask, _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(value, low), high)), offset);
    sum = _mm512_add_epi32(sum, codes);
    _mm_mask_storeu_epi8(out.values + i, mask, _mm512_cvtepi32_epi8(codes));
  }
  *out.scale = wild ? __builtin_nanf("") : 1.0f;
  *out.sum = _mm512_reduce_add_epi32(sum);
}

void quantize_row_avx512(const float* x, int64_t features, int group, const QuantizedRow& out) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t begin = 0; begin < features; begin += group) {
    __m512i most = _mm512_setzero_si512();
    for (int i = 0; i < group; i += 16) {
      most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_loadu_si512(x + begin + i), magnitude));
    }
    const GroupScale scale = group_scale(static_cast<uint32_t>(_mm512_reduce_max_epi32(most)));
    const __mmask16 keep = scale.inverse == 0.0f ? 0 : 0xffff;  // NaN times 0 is not 0
    const __m512 inverse = _mm512_set1_ps(scale.inverse);
    int32_t sums16[16];
    for (int i = 0; i < group; i += 16) {
      const __m512i codes = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(_mm512_loadu_ps(x + begin + i), inverse));
      sums16[i / 16] = _mm512_reduce_add_epi32(codes);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.values + begin + i), _mm512_cvtepi32_epi8(codes));
    }
    out.scales[begin / group] = scale.scale;
    store_sums(sums16, begin, group, scale.scale, out);
  }
}

// By integers, not vcvtneps2bf16, which flushes subnormals.
void bf16_row_avx512(const float* x, int64_t features, uint16_t* out) {
  for (int64_t i = 0; i < features; i += 16) {
    const __mmask16 mask = mask_of(features - i);
    const __m512i bits = _mm512_maskz_loadu_epi32(mask, x + i);
    const __m512i top = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 is_nan =
        _mm512_cmpgt_epi32_mask(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)), _mm512_set1_epi32(0x7f800000));
    const __m512i picked = _mm512_mask_or_epi32(rounded, is_nan, top, _mm512_set1_epi32(0x40));
    _mm256_mask_storeu_epi16(out + i, mask, _mm512_cvtepi32_epi16(picked));
  }
}

}  // namespace baton::kernels
