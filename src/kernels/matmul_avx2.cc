// Tiles for AVX2. A panel is worked on as two halves of 8 rows of W. vpmaddubsw adds two products in 16 bits: exact for
// codes up to 6 bits, whose sums also stay in range for a few steps; q8_0 multiplies |w| by x with the sign of w, whose
// pair is at most 2 * 128 * 127 = 32512. Formulas: matmul_ref.cc.
#include <immintrin.h>

#include <cstring>

#include "kernels/matmul_tile_split.h"

namespace baton::kernels {
namespace {

using tensor::DType;

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
[[gnu::always_inline]] inline __m256i shift(__m256i v, int left) {
  return left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
}

// The codes of steps 2 * line and 2 * line + 1 of a group, 8 rows.
template <int kBits>
[[gnu::always_inline]] inline void load_codes(const std::byte* codes, const std::byte* high, int line, __m256i& even,
                                              __m256i& odd) {
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

constexpr int group_bytes(int bits) { return bits == 8 ? 512 : 256; }
constexpr int high_bytes(int bits) { return bits == 5 ? 64 : bits == 6 ? 128 : 0; }
// Lines (of 8 inputs, 4 products to a 16-bit lane) whose sum fits in 16 bits: 4 * 15 * 127 * 4, 4 * 31 * 127 * 2, ...
constexpr int lines_in_16_bits(int bits) { return bits == 4 ? 4 : bits == 5 ? 2 : 1; }

// sums[r][h] += codes of lines [begin, end) . x, h a half of the panel.
template <int kBits, int R>
[[gnu::always_inline]] inline void dot_lines(const std::byte* panel, int64_t high_at, int64_t group, int begin, int end,
                                             const std::byte* const (&x)[R], __m256i (&sums)[R][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  BATON_UNROLL for (int h = 0; h < 2; ++h) {
    const std::byte* codes = panel + group * group_bytes(kBits) + h * 32;
    const std::byte* high = panel + high_at + group * high_bytes(kBits) + h * 32;
    __m256i words[R] = {};
    BATON_UNROLL for (int line = begin; line < end; ++line) {
      __m256i even, odd;
      load_codes<kBits>(codes, high, line, even, odd);
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
          if ((line + 1) % lines_in_16_bits(kBits) == 0) {
            sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(words[r], ones));
            words[r] = _mm256_setzero_si256();
          }
        }
      }
    }
  }
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

// kOffset: what is taken from a code (q8_0 is made signed instead).
template <int kBits, int kOffset, bool kMin>
struct Group32 {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel_index) {
    static_assert(P == 1);
    const std::byte* panel = t.panels + panel_index * t.layout->panel_bytes;
    const std::byte* x[R];
    set_rows<R>(t, row, x);
    const int64_t groups = t.features / 32;
    const PanelLayout layout = *t.layout;
    __m256 acc[R][2] = {};
    for (int64_t g = t.k_begin / 32; g < t.k_end / 32; ++g) {
      __m256i sums[R][2];
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const int32_t sum = t.sums[(row + r) * groups + g];
        sums[r][0] = sums[r][1] = _mm256_set1_epi32(-kOffset * sum);
      }
      dot_lines<kBits, R>(panel, layout.high, g, 0, 4, x, sums);
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 scale = load_f16(panel + layout.scales + g * 32 + h * 16);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m256 xs = _mm256_set1_ps(t.x_scales[(row + r) * groups + g]);
          acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][h]), _mm256_mul_ps(scale, xs), acc[r][h]);
        }
        if constexpr (kMin) {
          const __m256 min = load_f16(panel + layout.mins + g * 32 + h * 16);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            acc[r][h] = _mm256_fmadd_ps(min, _mm256_set1_ps(t.scaled_sums[(row + r) * groups + g]), acc[r][h]);
          }
        }
      }
    }
    store<R>(t, row, panel_index, acc);
  }
};

[[gnu::always_inline]] inline __m256i even_words(__m256i pairs) {
  return _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16);
}
[[gnu::always_inline]] inline __m256i odd_words(__m256i pairs) { return _mm256_srai_epi32(pairs, 16); }

// kBits 4, 5: q4_k, q5_k; 6: q6_k, whose runs are 16 long and whose sub-scales are signed.
template <int kBits>
struct Group256 {
  static constexpr bool kSigned = kBits == 6;

  [[gnu::always_inline]] static __m256i load_pairs(const std::byte* bytes) {
    return kSigned ? _mm256_cvtepi8_epi16(load128(bytes)) : _mm256_cvtepu8_epi16(load128(bytes));
  }

  // total[r][h] += the scaled dots of one pair of runs; q6_k: of one group, else of two.
  template <int R>
  [[gnu::always_inline]] static void add_pair(const PanelLayout& layout, const std::byte* panel, int64_t block,
                                              int pair, const std::byte* const (&x)[R], __m256i (&total)[R][2]) {
    const int pairs = kSigned ? 8 : 4;
    BATON_UNROLL for (int half = 0; half < 2; ++half) {
      __m256i sums[R][2] = {};
      if constexpr (kSigned) {
        dot_lines<kBits, R>(panel, layout.high, block * 8 + pair, half * 2, half * 2 + 2, x, sums);
      } else {
        dot_lines<kBits, R>(panel, layout.high, block * 8 + pair * 2 + half, 0, 4, x, sums);
      }
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256i factors = load_pairs(panel + layout.sub_scales + (block * pairs + pair) * 32 + h * 16);
        const __m256i factor = half == 0 ? even_words(factors) : odd_words(factors);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          total[r][h] = _mm256_add_epi32(total[r][h], _mm256_mullo_epi32(sums[r][h], factor));
        }
      }
    }
  }

  // sum of run sums by factors: the minimums of q4_k and q5_k, the offset of q6_k.
  [[gnu::always_inline]] static __m256i weigh_sums(const std::byte* factors, int pairs, const int16_t* sums) {
    __m256i out = _mm256_setzero_si256();
    for (int pair = 0; pair < pairs; ++pair) {
      out = _mm256_add_epi32(out, _mm256_madd_epi16(load_pairs(factors + pair * 32), broadcast32(sums + pair * 2)));
    }
    return out;
  }

  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel_index) {
    static_assert(P == 1);
    const std::byte* panel = t.panels + panel_index * t.layout->panel_bytes;
    const std::byte* x[R];
    set_rows<R>(t, row, x);
    const int64_t blocks = t.features / 256;
    const PanelLayout layout = *t.layout;
    const int pairs = kSigned ? 8 : 4;
    __m256 acc[R][2] = {};
    for (int64_t b = t.k_begin / 256; b < t.k_end / 256; ++b) {
      __m256i total[R][2] = {};
      for (int pair = 0; pair < pairs; ++pair) add_pair<R>(layout, panel, b, pair, x, total);
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 scale = load_f16(panel + layout.scales + b * 32 + h * 16);
        const std::byte* factors = panel + (kSigned ? layout.sub_scales : layout.sub_mins) + b * pairs * 32 + h * 16;
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const int16_t* short_sums = t.short_sums + ((row + r) * blocks + b) * 24 + (kSigned ? 8 : 0);
          const __m256 xs = _mm256_set1_ps(t.x_scales[(row + r) * blocks + b]);
          const __m256i weighed = weigh_sums(factors, pairs, short_sums);
          __m256i sum = total[r][h];
          if constexpr (kSigned) sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(weighed, 5));
          acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, xs), acc[r][h]);
          if constexpr (!kSigned) {
            const __m256 min = load_f16(panel + layout.mins + b * 32 + h * 16);
            acc[r][h] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(weighed), _mm256_mul_ps(min, xs), acc[r][h]);
          }
        }
      }
    }
    store<R>(t, row, panel_index, acc);
  }
};

template <bool kHalf>
struct Plain {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel_index) {
    static_assert(P == 1);
    const std::byte* panel = t.panels + panel_index * t.layout->panel_bytes;
    const std::byte* x[R];
    set_rows<R>(t, row, x);
    __m256 acc[R][2] = {};
    for (int64_t k = t.k_begin; k < t.k_end; ++k) {
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 w =
            kHalf ? load_f16(panel + k * 32 + h * 16) : _mm256_castsi256_ps(load256(panel + k * 64 + h * 32));
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          acc[r][h] = _mm256_fmadd_ps(_mm256_castsi256_ps(broadcast32(x[r] + k * 4)), w, acc[r][h]);
        }
      }
    }
    store<R>(t, row, panel_index, acc);
  }
};

// The odd input of a pair first, as vdpbf16ps has it.
struct Bf16 {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel_index) {
    static_assert(P == 1);
    const std::byte* panel = t.panels + panel_index * 64;
    const std::byte* x[R];
    set_rows<R>(t, row, x);
    const __m256i odd = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    __m256 acc[R][2] = {};
    for (int64_t k = t.k_begin; k < t.k_end; k += 2) {
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
    store<R>(t, row, panel_index, acc);
  }
};

}  // namespace

TileFunction matmul_tile_avx2(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return run_tile<Plain<false>, 4, 1, 1>;
    case DType::kF16:
      return run_tile<Plain<true>, 4, 1, 1>;
    case DType::kBF16:
      return run_tile<Bf16, 4, 1, 1>;
    case DType::kQ4_0:
      return run_tile<Group32<4, 8, false>, 2, 1, 1>;
    case DType::kQ4_1:
      return run_tile<Group32<4, 0, true>, 2, 1, 1>;
    case DType::kQ5_0:
      return run_tile<Group32<5, 16, false>, 2, 1, 1>;
    case DType::kQ5_1:
      return run_tile<Group32<5, 0, true>, 2, 1, 1>;
    case DType::kQ8_0:
      return run_tile<Group32<8, 0, false>, 2, 1, 1>;
    case DType::kQ4_K:
      return run_tile<Group256<4>, 2, 1, 1>;
    case DType::kQ5_K:
      return run_tile<Group256<5>, 2, 1, 1>;
    case DType::kQ6_K:
      return run_tile<Group256<6>, 2, 1, 1>;
    default:
      return nullptr;
  }
}

}  // namespace baton::kernels
