// What the AVX-512 tiles share. Everything is static or always inlined: see the room's README.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/matmul_tile_split.h"

namespace baton::kernels {
namespace {

#define BATON_UNROLL _Pragma("clang loop unroll(full)")

[[gnu::always_inline]] inline __m512i broadcast32(const void* bytes) {
  int32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return _mm512_set1_epi32(value);
}
[[gnu::always_inline]] inline __m512 load_f16(const std::byte* bytes) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
}
[[gnu::always_inline]] inline __m512i load_bytes(const std::byte* bytes) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
// 2^(byte + kShift - 127) of 16 bytes, kShift 0 or -1; results below 2^-126 are subnormal and exact.
template <int kShift>
[[gnu::always_inline]] inline __m512 load_e8m0(const std::byte* bytes) {
  const __m512i exponent = load_bytes(bytes);
  const __m512i normal = _mm512_slli_epi32(_mm512_add_epi32(exponent, _mm512_set1_epi32(kShift)), 23);
  const __mmask16 small = _mm512_cmple_epu32_mask(exponent, _mm512_set1_epi32(-kShift));
  // 2^-127 is bit 22.
  const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(1 << (22 + kShift)), exponent);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, subnormal));
}

// Asks for the kBytes of weights that lie kPrefetchAhead beyond `bytes`. By itself the processor keeps too few lines
// under way for the distance to L3, and its prefetchers stop at every 4 KiB: one core read 18 GB/s of 96 MB of weights,
// 28 with this. Past a panel lies the next one, past a matrix the next one to be read (MatrixMemory), past the last
// nothing: a prefetch never faults.
inline constexpr int kPrefetchAhead = 4096;
template <int kBytes>
[[gnu::always_inline]] inline void prefetch_weights(const std::byte* bytes) {
  BATON_UNROLL for (int at = 0; at < kBytes; at += 64) _mm_prefetch(bytes + kPrefetchAhead + at, _MM_HINT_T0);
}

// Pointers moved on by `step` bytes.
template <int N>
[[gnu::always_inline]] inline void advance(const std::byte* (&pointers)[N], const std::byte* const (&from)[N],
                                           int64_t step) {
  BATON_UNROLL for (int i = 0; i < N; ++i) pointers[i] = from[i] + step;
}

template <int R, int P>
[[gnu::always_inline]] inline void set_pointers(const MatmulTile& t, int row, int panel, int64_t panel_step,
                                                const std::byte* (&panels)[P], const std::byte* (&x)[R]) {
  BATON_UNROLL for (int p = 0; p < P; ++p) panels[p] = t.panels + (panel + p) * panel_step;
  BATON_UNROLL for (int r = 0; r < R; ++r) x[r] = t.x + (row + r) * t.x_stride;
}

template <int R, int P>
[[gnu::always_inline]] inline void store(const MatmulTile& t, int row, int panel, const __m512 (&acc)[R][P]) {
  BATON_UNROLL for (int r = 0; r < R; ++r) {
    float* out = t.out + (row + r) * t.panel_count * 16 + panel * 16;
    BATON_UNROLL for (int p = 0; p < P; ++p) _mm512_store_ps(out + p * 16, acc[r][p]);
  }
}

// acc = acc of an earlier segment + acc, `merges` times; see KSegment.
template <int R, int P>
struct SumStack {
  int depth = 0;
  __m512 sums[kMaxMergeDepth][R][P];

  [[gnu::always_inline]] void merge(int merges, __m512 (&acc)[R][P]) {
    for (; merges > 0; --merges) {
      --depth;
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        BATON_UNROLL for (int p = 0; p < P; ++p) acc[r][p] = _mm512_add_ps(sums[depth][r][p], acc[r][p]);
      }
    }
  }
  [[gnu::always_inline]] void push(const __m512 (&acc)[R][P]) {
    BATON_UNROLL for (int r = 0; r < R; ++r) { BATON_UNROLL for (int p = 0; p < P; ++p) sums[depth][r][p] = acc[r][p]; }
    ++depth;
  }
};

// Kernel::add_range adds the products of a range of K to acc; this goes through the segments with it.
template <typename Kernel>
struct Segmented {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel) {
    const std::byte* panels[P];
    const std::byte* x[R];
    set_pointers<R, P>(t, row, panel, Kernel::panel_step(t), panels, x);
    SumStack<R, P> stack;
    for (int i = 0;; ++i) {
      const KSegment& segment = t.segments[i];
      __m512 acc[R][P] = {};
      Kernel::template add_range<R, P>(t, row, panels, x, segment.begin, segment.end, acc);
      stack.merge(segment.merges, acc);
      if (i + 1 == t.segment_count) return store<R, P>(t, row, panel, acc);
      stack.push(acc);
    }
  }
};

}  // namespace
}  // namespace baton::kernels
