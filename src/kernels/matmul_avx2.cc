// Tiles for AVX2. A panel is worked on as two halves of 8 rows of W. vpmaddubsw adds two products in 16 bits: exact for
// codes up to 6 bits, whose sums also stay in range for a few steps; q8_0 multiplies |w| by x with the sign of w, whose
// pair is at most 2 * 128 * 127 = 32512. Formulas: matmul_ref.cc.
#include "kernels/matmul_avx2.h"

#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

using tensor::DType;

[[gnu::always_inline]] inline __m256i shift(__m256i v, int left) {
  return left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
}

// The codes of steps 2 * line and 2 * line + 1 of a group, 8 rows.
template <DType kType>
[[gnu::always_inline]] inline void load_codes(const std::byte* codes, const std::byte* high, int line, __m256i& even,
                                              __m256i& odd) {
  constexpr int kBits = code_bits(kType);
  if constexpr (kBits == 8) {
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    even = _mm256_xor_si256(load256(codes + line * 128), sign);  // back to the signed value
    odd = _mm256_xor_si256(load256(codes + line * 128 + 64), sign);
    return;
  }
  const __m256i nibble = _mm256_set1_epi8(0x0f);
  const __m256i both = load256(codes + line * 64);
  even = _mm256_and_si256(both, nibble);
  odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
  if constexpr (kType == DType::kMxfp4) {  // twice the value, plus 16
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
    even = _mm256_shuffle_epi8(table, even);
    odd = _mm256_shuffle_epi8(table, odd);
  }
  if constexpr (kBits == 5) {
    const __m256i bit = _mm256_set1_epi8(0x10);
    const __m256i bits = load256(high);
    even = _mm256_or_si256(even, _mm256_and_si256(shift(bits, 4 - 2 * line), bit));
    odd = _mm256_or_si256(odd, _mm256_and_si256(shift(bits, 3 - 2 * line), bit));
  }
  if constexpr (kBits == 6) {
    const __m256i pair = _mm256_set1_epi8(0x30);
    const __m256i bits = load256(high + line / 2 * 64);
    even = _mm256_or_si256(even, _mm256_and_si256(shift(bits, line % 2 == 0 ? 4 : 0), pair));
    odd = _mm256_or_si256(odd, _mm256_and_si256(shift(bits, line % 2 == 0 ? 2 : -2), pair));
  }
}

// Lines (of 8 inputs, 4 products to a 16-bit lane) whose sum fits in 16 bits: 4 * 15 * 127 * 4, 4 * 31 * 127 * 2, ...
// A code of mxfp4 is at most 28.
constexpr int lines_in_16_bits(DType dtype) {
  if (dtype == DType::kMxfp4 || code_bits(dtype) == 5) return 2;
  return code_bits(dtype) == 4 ? 4 : 1;
}

// sums[r][h] += codes of lines [begin, end) of a group of the record . x, h a half of the panel; x points at the
// record's first input.
template <DType kType, int R>
[[gnu::always_inline]] inline void dot_lines(const std::byte* record, int group, int begin, int end,
                                             const std::byte* const (&x)[R], __m256i (&sums)[R][2]) {
  constexpr BlockLayout layout = block_layout(kType);
  constexpr int kBits = code_bits(kType);
  const __m256i ones = _mm256_set1_epi16(1);
  BATON_UNROLL for (int h = 0; h < 2; ++h) {
    const std::byte* codes = record + layout.codes + group * layout.group_bytes + h * 32;
    const std::byte* high = record + layout.high + group * layout.group_bytes + h * 32;
    __m256i words[R] = {};
    BATON_UNROLL for (int line = begin; line < end; ++line) {
      __m256i even, odd;
      load_codes<kType>(codes, high, line, even, odd);
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const std::byte* at = x[r] + group * 32 + line * 8;
        const __m256i x_even = broadcast32(at), x_odd = broadcast32(at + 4);
        if constexpr (kBits == 8) {
          const __m256i low = _mm256_maddubs_epi16(_mm256_abs_epi8(even), _mm256_sign_epi8(x_even, even));
          const __m256i top = _mm256_maddubs_epi16(_mm256_abs_epi8(odd), _mm256_sign_epi8(x_odd, odd));
          sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(low, ones));
          sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(top, ones));
        } else {
          words[r] = _mm256_add_epi16(words[r], _mm256_maddubs_epi16(even, x_even));
          words[r] = _mm256_add_epi16(words[r], _mm256_maddubs_epi16(odd, x_odd));
          if ((line + 1) % lines_in_16_bits(kType) == 0) {
            sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(words[r], ones));
            words[r] = _mm256_setzero_si256();
          }
        }
      }
    }
  }
}

// The scales of half of a record's 16 rows, as block_scale has them.
template <DType kType>
[[gnu::always_inline]] inline __m256 load_scales(const std::byte* scales, int h) {
  const std::byte* at = scales + h * 8 * scale_bytes(kType);
  if constexpr (kType == DType::kMxfp4) return load_e8m0<-1>(at);
  if constexpr (kType == DType::kInt4Group32) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(at)), 16));
  }
  return load_f16(at);
}

template <DType kType>
struct Group32 {
  // q8_0's codes are made signed instead.
  static constexpr int kOffset = kType == DType::kQ8_0 ? 0 : code_offset(kType);

  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  template <int R>
  [[gnu::always_inline]] static void add_range(const MatmulTile& t, int row, const std::byte* panel,
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m256 (&acc)[R][2]) {
    constexpr BlockLayout layout = block_layout(kType);
    const std::byte* x[R];
    const int64_t groups = t.features / 32;
    for (int64_t g = begin / 32; g < end / 32; ++g) {
      const std::byte* record = panel + g * layout.bytes;
      BATON_UNROLL for (int r = 0; r < R; ++r) x[r] = rows[r] + g * 32;
      __m256i sums[R][2];
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const int32_t sum = t.sums[(row + r) * groups + g];
        sums[r][0] = sums[r][1] = _mm256_set1_epi32(-kOffset * sum);
      }
      dot_lines<kType, R>(record, 0, 0, 4, x, sums);
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 scale = load_scales<kType>(record + layout.scales, h);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m256 xs = _mm256_set1_ps(t.x_scales[(row + r) * groups + g]);
          acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][h]), _mm256_mul_ps(scale, xs), acc[r][h]);
        }
        if constexpr (has_min(kType)) {
          const __m256 min = load_f16(record + layout.mins + h * 16);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            acc[r][h] = _mm256_fmadd_ps(min, _mm256_set1_ps(t.scaled_sums[(row + r) * groups + g]), acc[r][h]);
          }
        }
      }
    }
  }
};

[[gnu::always_inline]] inline __m256i even_words(__m256i pairs) {
  return _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16);
}
[[gnu::always_inline]] inline __m256i odd_words(__m256i pairs) { return _mm256_srai_epi32(pairs, 16); }

// q6_k has runs of 16 inputs and signed sub-scales; q4_k and q5_k runs of 32, and minimums.
template <DType kType>
struct Group256 {
  static constexpr bool kSigned = kType == DType::kQ6_K;
  static constexpr int kPairs = kSigned ? 8 : 4;  // of runs

  [[gnu::always_inline]] static __m256i load_pairs(const std::byte* bytes) {
    return kSigned ? _mm256_cvtepi8_epi16(load128(bytes)) : _mm256_cvtepu8_epi16(load128(bytes));
  }

  // total[r][h] += the scaled dots of one pair of runs.
  template <int R>
  [[gnu::always_inline]] static void add_pair(const std::byte* record, int pair, const std::byte* const (&x)[R],
                                              __m256i (&total)[R][2]) {
    BATON_UNROLL for (int half = 0; half < 2; ++half) {
      __m256i sums[R][2] = {};
      if constexpr (kSigned) {
        dot_lines<kType, R>(record, pair, half * 2, half * 2 + 2, x, sums);
      } else {
        dot_lines<kType, R>(record, pair * 2 + half, 0, 4, x, sums);
      }
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256i factors = load_pairs(record + block_layout(kType).sub_scales + pair * 32 + h * 16);
        const __m256i factor = half == 0 ? even_words(factors) : odd_words(factors);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          total[r][h] = _mm256_add_epi32(total[r][h], _mm256_mullo_epi32(sums[r][h], factor));
        }
      }
    }
  }

  // sum of run sums by factors: the minimums of q4_k and q5_k, the offset of q6_k.
  [[gnu::always_inline]] static __m256i weigh_sums(const std::byte* factors, const int16_t* sums) {
    __m256i out = _mm256_setzero_si256();
    for (int pair = 0; pair < kPairs; ++pair) {
      out = _mm256_add_epi32(out, _mm256_madd_epi16(load_pairs(factors + pair * 32), broadcast32(sums + pair * 2)));
    }
    return out;
  }

  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  template <int R>
  [[gnu::always_inline]] static void add_range(const MatmulTile& t, int row, const std::byte* panel,
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m256 (&acc)[R][2]) {
    constexpr BlockLayout layout = block_layout(kType);
    const std::byte* x[R];
    const int64_t blocks = t.features / 256;
    for (int64_t b = begin / 256; b < end / 256; ++b) {
      const std::byte* record = panel + b * layout.bytes;
      BATON_UNROLL for (int r = 0; r < R; ++r) x[r] = rows[r] + b * 256;
      __m256i total[R][2] = {};
      for (int pair = 0; pair < kPairs; ++pair) add_pair<R>(record, pair, x, total);
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 scale = load_f16(record + layout.scales + h * 16);
        const std::byte* factors = record + (kSigned ? layout.sub_scales : layout.sub_mins) + h * 16;
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const int16_t* short_sums = t.short_sums + ((row + r) * blocks + b) * 24 + (kSigned ? 8 : 0);
          const __m256 xs = _mm256_set1_ps(t.x_scales[(row + r) * blocks + b]);
          const __m256i weighed = weigh_sums(factors, short_sums);
          __m256i sum = total[r][h];
          if constexpr (kSigned) sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(weighed, code_offset_shift(kType)));
          if constexpr (!kSigned) {
            const __m256 min = load_f16(record + layout.mins + h * 16);
            acc[r][h] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(weighed), _mm256_mul_ps(min, xs), acc[r][h]);
          }
          acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, xs), acc[r][h]);
        }
      }
    }
  }
};

template <bool kHalf>
struct Plain {
  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  template <int R>
  [[gnu::always_inline]] static void add_range(const MatmulTile&, int, const std::byte* panel,
                                               const std::byte* const (&x)[R], int64_t begin, int64_t end,
                                               __m256 (&acc)[R][2]) {
    for (int64_t k = begin; k < end; ++k) {
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 w =
            kHalf ? load_f16(panel + k * 32 + h * 16) : _mm256_castsi256_ps(load256(panel + k * 64 + h * 32));
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          acc[r][h] = _mm256_fmadd_ps(_mm256_castsi256_ps(broadcast32(x[r] + k * 4)), w, acc[r][h]);
        }
      }
    }
  }
};

// The odd input of a pair first, as vdpbf16ps has it.
struct Bf16 {
  static int64_t panel_step(const MatmulTile&) { return 64; }

  template <int R>
  [[gnu::always_inline]] static void add_range(const MatmulTile&, int, const std::byte* panel,
                                               const std::byte* const (&x)[R], int64_t begin, int64_t end,
                                               __m256 (&acc)[R][2]) {
    const __m256i odd = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    for (int64_t k = begin; k < end; k += 2) {
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256i w = load256(panel + k * 128 + h * 32);
        const __m256 w_odd = _mm256_castsi256_ps(_mm256_and_si256(w, odd));
        const __m256 w_even = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m256i pair = broadcast32(x[r] + k * 2);
          acc[r][h] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(pair, odd)), w_odd, acc[r][h]);
          acc[r][h] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)), w_even, acc[r][h]);
        }
      }
    }
  }
};

}  // namespace

TileFunction matmul_tile_avx2(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return run_tile<Segmented<Plain<false>>, 4, 1, 1>;
    case DType::kF16:
      return run_tile<Segmented<Plain<true>>, 4, 1, 1>;
    case DType::kBF16:
      return run_tile<Segmented<Bf16>, 4, 1, 1>;
    case DType::kQ4_0:
      return run_tile<Segmented<Group32<DType::kQ4_0>>, 2, 1, 1>;
    case DType::kQ4_1:
      return run_tile<Segmented<Group32<DType::kQ4_1>>, 2, 1, 1>;
    case DType::kQ5_0:
      return run_tile<Segmented<Group32<DType::kQ5_0>>, 2, 1, 1>;
    case DType::kQ5_1:
      return run_tile<Segmented<Group32<DType::kQ5_1>>, 2, 1, 1>;
    case DType::kQ8_0:
      return run_tile<Segmented<Group32<DType::kQ8_0>>, 2, 1, 1>;
    case DType::kQ4_K:
      return run_tile<Segmented<Group256<DType::kQ4_K>>, 2, 1, 1>;
    case DType::kQ5_K:
      return run_tile<Segmented<Group256<DType::kQ5_K>>, 2, 1, 1>;
    case DType::kQ6_K:
      return run_tile<Segmented<Group256<DType::kQ6_K>>, 2, 1, 1>;
    case DType::kMxfp4:
      return run_tile<Segmented<Group32<DType::kMxfp4>>, 2, 1, 1>;
    case DType::kInt4Group32:
      return run_tile<Segmented<Group32<DType::kInt4Group32>>, 2, 1, 1>;
    case DType::kFp8Block:
    case DType::kMxfp8:
      return fp8_tile_avx2(dtype);
    case DType::kInt8Channel:
    case DType::kInt4Channel:
    case DType::kInt8Static:
      return channel_tile_avx2(dtype);
    default:
      return nullptr;
  }
}

}  // namespace baton::kernels
