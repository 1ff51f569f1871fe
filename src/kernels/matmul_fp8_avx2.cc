// Tiles of e4m3 weights for AVX2: a code moved by a bit is an f16 of 2^-8 times its value, which vcvtph2ps reads,
// subnormals too. (The NaN code would be read as 480: PackedMatrix::finish refuses it.) Formulas: matmul_ref.cc.
#include "kernels/matmul_avx2.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

using tensor::DType;

// Codes in the high bytes of 16-bit lanes to f16 of 2^-8 times the value.
[[gnu::always_inline]] inline __m256i to_f16(__m256i words) {
  const __m256i sign = _mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  const __m256i magnitude = _mm256_and_si256(words, _mm256_set1_epi16(0x7f00));
  return _mm256_or_si256(sign, _mm256_srli_epi16(magnitude, 1));
}

// Half a line: inputs 0 .. 3 of a step of 8 rows.
[[gnu::always_inline]] inline void decode(const std::byte* bytes, __m256 (&w)[4]) {
  const __m256i codes = load256(bytes);
  const __m256 factor = _mm256_set1_ps(256.0f);
  BATON_UNROLL for (int odd = 0; odd < 2; ++odd) {
    const __m256i halves = to_f16(odd == 0 ? _mm256_slli_epi16(codes, 8) : codes);
    const __m256i apart = _mm256_permute4x64_epi64(halves, 0xd8);  // one input's 8 rows, then the other's
    w[odd] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(apart)), factor);
    w[2 + odd] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(apart, 1)), factor);
  }
}

template <DType kType>
struct Fp8 {
  static constexpr int kInputs = kType == DType::kFp8Block ? 128 : 32;

  static int64_t panel_step(const MatmulTile&) { return 64; }

  // Of half a panel's rows for the group at input k.
  [[gnu::always_inline]] static __m256 load_scales(const std::byte* panel, int h, int64_t k) {
    const std::byte* scales = panel + fp8_scale_offset(kType, h * 8, k);
    if constexpr (kType == DType::kMxfp8) return load_e8m0<0>(scales);
    return _mm256_castsi256_ps(load256(scales));
  }

  template <int R>
  [[gnu::always_inline]] static void add_range(const MatmulTile&, int, const std::byte* panel,
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m256 (&acc)[R][2]) {
    const __m256i odd = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    for (int64_t first = begin; first < end; first += kInputs) {
      const std::byte* codes = panel + fp8_step_offset(first);
      __m256 sums[R][2] = {};
      for (int step = 0; step < kInputs / 4; ++step) {
        BATON_UNROLL for (int h = 0; h < 2; ++h) {
          __m256 w[4];
          decode(codes + step * kFp8StepBytes + h * 32, w);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            BATON_UNROLL for (int pair = 0; pair < 2; ++pair) {
              const __m256i x = broadcast32(rows[r] + (first + step * 4 + pair * 2) * 2);
              const __m256 x_odd = _mm256_castsi256_ps(_mm256_and_si256(x, odd));
              const __m256 x_even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
              sums[r][h] = _mm256_fmadd_ps(x_odd, w[pair * 2 + 1], sums[r][h]);
              sums[r][h] = _mm256_fmadd_ps(x_even, w[pair * 2], sums[r][h]);
            }
          }
        }
      }
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 scale = load_scales(panel, h, first);
        BATON_UNROLL for (int r = 0; r < R; ++r) acc[r][h] = _mm256_fmadd_ps(sums[r][h], scale, acc[r][h]);
      }
    }
  }
};

}  // namespace

TileFunction fp8_tile_avx2(DType dtype) {
  if (dtype == DType::kFp8Block) return run_tile<Segmented<Fp8<DType::kFp8Block>>, 4, 1, 1>;
  return run_tile<Segmented<Fp8<DType::kMxfp8>>, 4, 1, 1>;
}

}  // namespace baton::kernels
