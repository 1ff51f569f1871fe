// What the AVX2 tiles share. Everything is static or always inlined: see the room's README.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/matmul_tile_split.h"

namespace baton::kernels {
namespace {

#define BATON_UNROLL _Pragma("clang loop unroll(full)")

[[gnu::always_inline]] inline __m256i load256(const std::byte* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}
[[gnu::always_inline]] inline __m128i load128(const std::byte* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}
[[gnu::always_inline]] inline __m256i broadcast32(const void* bytes) {
  int32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return _mm256_set1_epi32(value);
}
[[gnu::always_inline]] inline __m256 load_f16(const std::byte* bytes) { return _mm256_cvtph_ps(load128(bytes)); }
// 2^(byte + kShift - 127) of 8 bytes, kShift 0 or -1; results below 2^-126 are subnormal and exact.
template <int kShift>
[[gnu::always_inline]] inline __m256 load_e8m0(const std::byte* bytes) {
  const __m256i exponent = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  const __m256i normal = _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(kShift)), 23);
  const __m256i large = _mm256_cmpgt_epi32(exponent, _mm256_set1_epi32(-kShift));
  // 2^-127 is bit 22.
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(1 << (22 + kShift)), exponent);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, large));
}

template <int R>
[[gnu::always_inline]] inline void set_rows(const MatmulTile& t, int row, const std::byte* (&x)[R]) {
  BATON_UNROLL for (int r = 0; r < R; ++r) x[r] = t.x + (row + r) * t.x_stride;
}

template <int R>
[[gnu::always_inline]] inline void store(const MatmulTile& t, int row, int panel, const __m256 (&acc)[R][2]) {
  BATON_UNROLL for (int r = 0; r < R; ++r) {
    float* out = t.out + (row + r) * t.panel_count * 16 + panel * 16;
    _mm256_store_ps(out, acc[r][0]);
    _mm256_store_ps(out + 8, acc[r][1]);
  }
}

// acc = acc of an earlier segment + acc, `merges` times; see KSegment.
template <int R>
struct SumStack {
  int depth = 0;
  __m256 sums[kMaxMergeDepth][R][2];

  [[gnu::always_inline]] void merge(int merges, __m256 (&acc)[R][2]) {
    for (; merges > 0; --merges) {
      --depth;
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        BATON_UNROLL for (int h = 0; h < 2; ++h) acc[r][h] = _mm256_add_ps(sums[depth][r][h], acc[r][h]);
      }
    }
  }
  [[gnu::always_inline]] void push(const __m256 (&acc)[R][2]) {
    BATON_UNROLL for (int r = 0; r < R; ++r) { BATON_UNROLL for (int h = 0; h < 2; ++h) sums[depth][r][h] = acc[r][h]; }
    ++depth;
  }
};

// Kernel::add_range adds the products of a range of K to acc; this goes through the segments with it.
template <typename Kernel>
struct Segmented {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel_index) {
    static_assert(P == 1);
    const std::byte* panel = t.panels + panel_index * Kernel::panel_step(t);
    const std::byte* x[R];
    set_rows<R>(t, row, x);
    SumStack<R> stack;
    for (int i = 0;; ++i) {
      const KSegment& segment = t.segments[i];
      __m256 acc[R][2] = {};
      Kernel::template add_range<R>(t, row, panel, x, segment.begin, segment.end, acc);
      stack.merge(segment.merges, acc);
      if (i + 1 == t.segment_count) return store<R>(t, row, panel_index, acc);
      stack.push(acc);
    }
  }
};

}  // namespace
}  // namespace baton::kernels
