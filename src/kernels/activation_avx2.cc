#include <immintrin.h>

#include "kernels/activation_rows.h"

namespace baton::kernels {
namespace {

int32_t sum_lanes(__m256i v) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

uint32_t max_lanes(__m256i v) {
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1))));
}

// 8 codes to 8 bytes, twice.
__m128i to_bytes(__m256i codes) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  return _mm_packs_epi16(words, words);
}

// A row in steps of 8, its last values in a copy filled up with zeros.
template <typename Visit>
void for_each_8(const float* x, int64_t features, Visit visit) {
  int64_t i = 0;
  for (; i + 8 <= features; i += 8) visit(i, 8, _mm256_loadu_ps(x + i));
  if (i == features) return;
  float tail[8] = {};
  __builtin_memcpy(tail, x + i, static_cast<size_t>(features - i) * 4);
  visit(i, features - i, _mm256_loadu_ps(tail));
}

uint32_t largest(const float* x, int64_t features) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for_each_8(x, features, [&](int64_t, int64_t, __m256 values) {
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(values), magnitude));
  });
  return max_lanes(most);
}

// code_of: 8 floats to 8 int32 codes; where `zero`, all codes are 0.
template <typename CodeOf>
void store_row(const float* x, int64_t features, bool zero, CodeOf code_of, const RowCodes& out) {
  __m256i sum = _mm256_setzero_si256();
  for_each_8(x, features, [&](int64_t i, int64_t count, __m256 values) {
    const __m256i left = _mm256_set1_epi32(zero ? 0 : static_cast<int>(count));
    const __m256i used = _mm256_cmpgt_epi32(left, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i codes = _mm256_and_si256(code_of(values), used);
    sum = _mm256_add_epi32(sum, codes);
    const int64_t bytes = _mm_cvtsi128_si64(to_bytes(codes));
    __builtin_memcpy(out.values + i, &bytes, static_cast<size_t>(count));
  });
  *out.sum = sum_lanes(sum);
}

}  // namespace

void int8_row_avx2(const float* x, int64_t features, const RowCodes& out) {
  const GroupScale scale = group_scale(largest(x, features));
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  store_row(
      x, features, scale.inverse == 0.0f, [&](__m256 v) { return _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse)); }, out);
  *out.scale = scale.scale;
}

void static_row_avx2(const float* x, int64_t features, StaticQuant quant, const RowCodes& out) {
  const bool wild = largest(x, features) >= 0x7f800000u;
  const __m256 input_scale = _mm256_set1_ps(quant.input_scale);
  const __m256 low = _mm256_set1_ps(static_cast<float>(-128 - quant.input_offset));
  const __m256 high = _mm256_set1_ps(static_cast<float>(127 - quant.input_offset));
  const __m256i offset = _mm256_set1_epi32(quant.input_offset);
  const auto code_of = [&](__m256 v) {
    const __m256 clamped = _mm256_min_ps(_mm256_max_ps(_mm256_div_ps(v, input_scale), low), high);
    return _mm256_add_epi32(_mm256_cvtps_epi32(clamped), offset);
  };
  store_row(x, features, wild, code_of, out);
  *out.scale = wild ? __builtin_nanf("") : 1.0f;
}

void quantize_row_avx2(const float* x, int64_t features, int group, const QuantizedRow& out) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (int64_t begin = 0; begin < features; begin += group) {
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < group; i += 8) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + begin + i));
      most = _mm256_max_epi32(most, _mm256_and_si256(bits, magnitude));
    }
    const GroupScale scale = group_scale(max_lanes(most));
    const bool zero = scale.inverse == 0.0f;  // NaN times 0 is not 0
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    int32_t sums16[16];
    for (int i = 0; i < group; i += 16) {
      __m256i low = _mm256_setzero_si256(), high = low;
      if (!zero) {
        low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + begin + i), inverse));
        high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + begin + i + 8), inverse));
      }
      sums16[i / 16] = sum_lanes(_mm256_add_epi32(low, high));
      const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
      const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.values + begin + i), bytes);
    }
    out.scales[begin / group] = scale.scale;
    store_sums(sums16, begin, group, scale.scale, out);
  }
}

namespace {

// 8 floats to bf16, as tensor::float_to_bf16: by integers, so that subnormals stay.
__m128i to_bf16(__m256i bits) {
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256i is_nan =
      _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)), _mm256_set1_epi32(0x7f800000));
  const __m256i picked = _mm256_blendv_epi8(rounded, quiet, is_nan);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(picked, picked), 0xd8));
}

}  // namespace

void bf16_row_avx2(const float* x, int64_t features, uint16_t* out) {
  int64_t i = 0;
  for (; i + 8 <= features; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), to_bf16(bits));
  }
  if (i < features) {
    float tail[8] = {};
    uint16_t converted[8];
    __builtin_memcpy(tail, x + i, static_cast<size_t>(features - i) * 4);
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tail));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(converted), to_bf16(bits));
    __builtin_memcpy(out + i, converted, static_cast<size_t>(features - i) * 2);
  }
}

}  // namespace baton::kernels
