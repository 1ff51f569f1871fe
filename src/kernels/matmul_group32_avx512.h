// Codes and scales of records of 32 or 256 inputs in AVX-512 registers. Everything is static or always inlined: see the
// room's README.
#pragma once

#include "kernels/matmul_avx512.h"

namespace baton::kernels {
namespace {

// The codes of steps 2 * line and 2 * line + 1 of a group.
template <tensor::DType kType>
[[gnu::always_inline]] inline void load_codes(const std::byte* codes, const std::byte* high, int line, __m512i& even,
                                              __m512i& odd) {
  constexpr int kBits = code_bits(kType);
  if constexpr (kBits == 8) {
    even = _mm512_loadu_si512(codes + line * 128);
    odd = _mm512_loadu_si512(codes + line * 128 + 64);
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i both = _mm512_loadu_si512(codes + line * 64);
  even = _mm512_and_si512(both, nibble);
  odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
  if constexpr (kType == tensor::DType::kMxfp4) {  // twice the value, plus 16
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
    even = _mm512_shuffle_epi8(table, even);
    odd = _mm512_shuffle_epi8(table, odd);
  }
  if constexpr (kBits == 5) {
    const __m512i bit = _mm512_set1_epi8(0x10);
    const __m512i bits = _mm512_loadu_si512(high);
    const __m512i at_even = line <= 2 ? _mm512_slli_epi16(bits, 4 - 2 * line) : _mm512_srli_epi16(bits, 2);
    const __m512i at_odd = line <= 1 ? _mm512_slli_epi16(bits, 3 - 2 * line) : _mm512_srli_epi16(bits, 2 * line - 3);
    even = _mm512_ternarylogic_epi32(even, at_even, bit, 0xf8);  // even | (at_even & bit)
    odd = _mm512_ternarylogic_epi32(odd, at_odd, bit, 0xf8);
  }
  if constexpr (kBits == 6) {
    const __m512i pair = _mm512_set1_epi8(0x30);
    const __m512i bits = _mm512_loadu_si512(high + line / 2 * 64);
    const __m512i at_even = line % 2 == 0 ? _mm512_slli_epi16(bits, 4) : bits;
    const __m512i at_odd = line % 2 == 0 ? _mm512_slli_epi16(bits, 2) : _mm512_srli_epi16(bits, 2);
    even = _mm512_ternarylogic_epi32(even, at_even, pair, 0xf8);
    odd = _mm512_ternarylogic_epi32(odd, at_odd, pair, 0xf8);
  }
}

// The scales of a record's 16 rows, as block_scale has them.
template <tensor::DType kType>
[[gnu::always_inline]] inline __m512 load_scales(const std::byte* scales) {
  if constexpr (kType == tensor::DType::kMxfp4) return load_e8m0<-1>(scales);
  if constexpr (kType == tensor::DType::kInt4Group32) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  return load_f16(scales);
}

}  // namespace
}  // namespace baton::kernels
