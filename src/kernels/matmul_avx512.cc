// Tiles for AVX-512 with VNNI and BF16. A register holds one step of 16 rows of W: 4 inputs of int8 (vpdpbusd), 2 of
// bf16 (vdpbf16ps) or 1 of f32. Formulas: matmul_ref.cc.
//
// Sketch, per panel and group of 32 on Zen 4 (one vpdpbusd or fma a cycle): 8 dots, 1 multiply, 1 or 2 fma a row, so at
// most 80 % (with a minimum 73 %) of the VNNI peak; one row reads 288 bytes in about 16 cycles, above DRAM's rate.
#include "kernels/matmul_avx512.h"

#include "kernels/matmul_group32_avx512.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

using tensor::DType;

// 32 bytes to 16 pairs of 16-bit words.
[[gnu::always_inline]] inline __m512i load_pairs_u8(const std::byte* bytes) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
}
[[gnu::always_inline]] inline __m512i load_pairs_s8(const std::byte* bytes) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
}

// sums[r][p] += codes of line (8 inputs) of a group of the records . x, which points at the record's first input
template <DType kType, int R, int P>
[[gnu::always_inline]] inline void dot_line(const std::byte* const (&records)[P], int group, int line,
                                            const std::byte* const (&x)[R], __m512i (&sums)[R][P]) {
  constexpr BlockLayout layout = block_layout(kType);
  __m512i even[P], odd[P];
  BATON_UNROLL for (int p = 0; p < P; ++p) {
    load_codes<kType>(records[p] + layout.codes + group * layout.group_bytes,
                      records[p] + layout.high + group * layout.group_bytes, line, even[p], odd[p]);
  }
  BATON_UNROLL for (int r = 0; r < R; ++r) {
    const std::byte* at = x[r] + group * 32 + line * 8;
    const __m512i x_even = broadcast32(at), x_odd = broadcast32(at + 4);
    BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], even[p], x_even);
    BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], odd[p], x_odd);
  }
}

template <DType kType>
struct Group32 {
  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  template <int R, int P>
  [[gnu::always_inline]] static void add_range(const MatmulTile& t, int row, const std::byte* const (&panels)[P],
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m512 (&acc)[R][P]) {
    constexpr BlockLayout layout = block_layout(kType);
    const std::byte* records[P];
    const std::byte* x[R];
    const int64_t groups = t.features / 32;
    for (int64_t g = begin / 32; g < end / 32; ++g) {
      advance(records, panels, g * layout.bytes);
      advance(x, rows, g * 32);
      BATON_UNROLL for (int p = 0; p < P; ++p) prefetch_weights<layout.bytes>(records[p]);
      __m512i sums[R][P];
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        __m512i start = _mm512_setzero_si512();
        if constexpr (code_offset_shift(kType) > 0) {
          const __m512i sum = broadcast32(t.sums + (row + r) * groups + g);
          start = _mm512_sub_epi32(start, _mm512_slli_epi32(sum, code_offset_shift(kType)));
        }
        BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = start;
      }
      BATON_UNROLL for (int line = 0; line < 4; ++line) dot_line<kType, R, P>(records, 0, line, x, sums);
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = load_scales<kType>(records[p] + layout.scales);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m512 xs = _mm512_set1_ps(t.x_scales[(row + r) * groups + g]);
          acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]), _mm512_mul_ps(scale, xs), acc[r][p]);
        }
        if constexpr (has_min(kType)) {
          const __m512 min = load_f16(records[p] + layout.mins);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            const __m512 scaled_sum = _mm512_set1_ps(t.scaled_sums[(row + r) * groups + g]);
            acc[r][p] = _mm512_fmadd_ps(min, scaled_sum, acc[r][p]);
          }
        }
      }
    }
  }
};

// q4_k, q5_k: 8 runs of 32 inputs, each with a 6-bit scale and minimum.
template <DType kType>
struct Group256 {
  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  template <int R, int P>
  [[gnu::always_inline]] static void add_range(const MatmulTile& t, int row, const std::byte* const (&panels)[P],
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m512 (&acc)[R][P]) {
    constexpr BlockLayout layout = block_layout(kType);
    const std::byte* records[P];
    const std::byte* x[R];
    const int64_t blocks = t.features / 256;
    for (int64_t b = begin / 256; b < end / 256; ++b) {
      advance(records, panels, b * layout.bytes);
      advance(x, rows, b * 256);
      // The head of the record first, as it lies in memory.
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        prefetch_weights<layout.high>(records[p]);
        const __m512 min = load_f16(records[p] + layout.mins);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          __m512i minimum = _mm512_setzero_si512();
          const int16_t* short_sums = t.short_sums + ((row + r) * blocks + b) * 24;
          BATON_UNROLL for (int pair = 0; pair < 4; ++pair) {
            minimum = _mm512_dpwssd_epi32(minimum, load_pairs_u8(records[p] + layout.sub_mins + pair * 32),
                                          broadcast32(short_sums + pair * 2));
          }
          const __m512 xs = _mm512_set1_ps(t.x_scales[(row + r) * blocks + b]);
          acc[r][p] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(minimum), _mm512_mul_ps(min, xs), acc[r][p]);
        }
      }
      __m512i total[R][P] = {};
      for (int pair = 0; pair < 4; ++pair) {
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          prefetch_weights<2 * layout.group_bytes>(records[p] + layout.high + pair * 2 * layout.group_bytes);
        }
        BATON_UNROLL for (int half = 0; half < 2; ++half) {
          __m512i sums[R][P] = {};
          BATON_UNROLL for (int line = 0; line < 4; ++line) {
            dot_line<kType, R, P>(records, pair * 2 + half, line, x, sums);
          }
          BATON_UNROLL for (int p = 0; p < P; ++p) {
            const __m512i factors = load_pairs_u8(records[p] + layout.sub_scales + pair * 32);
            const __m512i factor =
                half == 0 ? _mm512_and_si512(factors, _mm512_set1_epi32(0xffff)) : _mm512_srli_epi32(factors, 16);
            BATON_UNROLL for (int r = 0; r < R; ++r) {
              total[r][p] = _mm512_add_epi32(total[r][p], _mm512_mullo_epi32(sums[r][p], factor));
            }
          }
        }
      }
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = load_f16(records[p] + layout.scales);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m512 xs = _mm512_set1_ps(t.x_scales[(row + r) * blocks + b]);
          acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[r][p]), _mm512_mul_ps(scale, xs), acc[r][p]);
        }
      }
    }
  }
};

// q6_k: 16 runs of 16 inputs, each with a signed 8-bit scale.
struct Q6K {
  static constexpr DType kType = DType::kQ6_K;

  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  template <int R, int P>
  [[gnu::always_inline]] static void add_range(const MatmulTile& t, int row, const std::byte* const (&panels)[P],
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m512 (&acc)[R][P]) {
    constexpr BlockLayout layout = block_layout(kType);
    const std::byte* records[P];
    const std::byte* x[R];
    const int64_t blocks = t.features / 256;
    for (int64_t b = begin / 256; b < end / 256; ++b) {
      advance(records, panels, b * layout.bytes);
      advance(x, rows, b * 256);
      // The offset first: -32 times the sum of run sums by run scales.
      __m512i total[R][P] = {};
      BATON_UNROLL for (int p = 0; p < P; ++p) prefetch_weights<layout.high>(records[p]);
      for (int group = 0; group < 8; ++group) {
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          const __m512i factors = load_pairs_s8(records[p] + layout.sub_scales + group * 32);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            const int16_t* short_sums = t.short_sums + ((row + r) * blocks + b) * 24 + 8;
            total[r][p] = _mm512_dpwssd_epi32(total[r][p], factors, broadcast32(short_sums + group * 2));
          }
        }
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          const __m512i offset = _mm512_slli_epi32(total[r][p], code_offset_shift(kType));
          total[r][p] = _mm512_sub_epi32(_mm512_setzero_si512(), offset);
        }
      }
      for (int group = 0; group < 8; ++group) {
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          prefetch_weights<layout.group_bytes>(records[p] + layout.high + group * layout.group_bytes);
        }
        BATON_UNROLL for (int half = 0; half < 2; ++half) {
          __m512i sums[R][P] = {};
          dot_line<kType, R, P>(records, group, half * 2, x, sums);
          dot_line<kType, R, P>(records, group, half * 2 + 1, x, sums);
          BATON_UNROLL for (int p = 0; p < P; ++p) {
            const __m512i factors = load_pairs_s8(records[p] + layout.sub_scales + group * 32);
            const __m512i factor = _mm512_srai_epi32(half == 0 ? _mm512_slli_epi32(factors, 16) : factors, 16);
            BATON_UNROLL for (int r = 0; r < R; ++r) {
              total[r][p] = _mm512_add_epi32(total[r][p], _mm512_mullo_epi32(sums[r][p], factor));
            }
          }
        }
      }
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = load_f16(records[p] + layout.scales);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m512 xs = _mm512_set1_ps(t.x_scales[(row + r) * blocks + b]);
          acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[r][p]), _mm512_mul_ps(scale, xs), acc[r][p]);
        }
      }
    }
  }
};

template <bool kHalf>
struct Plain {
  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  template <int R, int P>
  [[gnu::always_inline]] static void add_range(const MatmulTile&, int, const std::byte* const (&panels)[P],
                                               const std::byte* const (&x)[R], int64_t begin, int64_t end,
                                               __m512 (&acc)[R][P]) {
#pragma clang loop unroll_count(4)
    for (int64_t k = begin; k < end; ++k) {
      __m512 w[P];
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        prefetch_weights<kHalf ? 32 : 64>(panels[p] + k * (kHalf ? 32 : 64));
        w[p] = kHalf ? load_f16(panels[p] + k * 32) : _mm512_loadu_ps(panels[p] + k * 64);
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const __m512 value = _mm512_castsi512_ps(broadcast32(x[r] + k * 4));
        BATON_UNROLL for (int p = 0; p < P; ++p) acc[r][p] = _mm512_fmadd_ps(value, w[p], acc[r][p]);
      }
    }
  }
};

}  // namespace

TileFunction matmul_tile_avx512(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return run_tile<Segmented<Plain<false>>, 4, 2, 2>;
    case DType::kF16:
      return run_tile<Segmented<Plain<true>>, 4, 2, 2>;
    case DType::kBF16:
      return bf16_tile_avx512();
    case DType::kQ4_0:
      return run_tile<Segmented<Group32<DType::kQ4_0>>, 4, 2, 1>;
    case DType::kQ4_1:
      return run_tile<Segmented<Group32<DType::kQ4_1>>, 4, 2, 1>;
    case DType::kQ5_0:
      return run_tile<Segmented<Group32<DType::kQ5_0>>, 4, 2, 1>;
    case DType::kQ5_1:
      return run_tile<Segmented<Group32<DType::kQ5_1>>, 4, 2, 1>;
    case DType::kQ8_0:
      return run_tile<Segmented<Group32<DType::kQ8_0>>, 4, 2, 1>;
    case DType::kQ4_K:
      return run_tile<Segmented<Group256<DType::kQ4_K>>, 4, 2, 1>;
    case DType::kQ5_K:
      return run_tile<Segmented<Group256<DType::kQ5_K>>, 4, 2, 1>;
    case DType::kQ6_K:
      return run_tile<Segmented<Q6K>, 4, 2, 1>;
    case DType::kMxfp4:
      return run_tile<Segmented<Group32<DType::kMxfp4>>, 4, 2, 1>;
    case DType::kInt4Group32:
      return run_tile<Segmented<Group32<DType::kInt4Group32>>, 4, 2, 1>;
    case DType::kFp8Block:
    case DType::kMxfp8:
      return fp8_tile_avx512(dtype);
    case DType::kInt8Channel:
    case DType::kInt4Channel:
    case DType::kInt8Static:
      return channel_tile_avx512(dtype);
    default:
      return nullptr;
  }
}

}  // namespace baton::kernels
