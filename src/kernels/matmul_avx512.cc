// Tiles for AVX-512 with VNNI and BF16. A register holds one step of 16 rows of W: 4 inputs of int8 (vpdpbusd), 2 of
// bf16 (vdpbf16ps) or 1 of f32. Formulas: matmul_ref.cc.
//
// Sketch, per panel and group of 32 on Zen 4 (one vpdpbusd or fma a cycle): 8 dots, 1 multiply, 1 or 2 fma a row, so at
// most 80 % (with a minimum 73 %) of the VNNI peak; one row reads 288 bytes in about 16 cycles, above DRAM's rate.
#include <immintrin.h>

#include <cstring>

#include "kernels/matmul_tile_split.h"

namespace baton::kernels {
namespace {

using tensor::DType;

#define BATON_UNROLL _Pragma("clang loop unroll(full)")

[[gnu::always_inline]] inline __m512i broadcast32(const void* bytes) {
  int32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return _mm512_set1_epi32(value);
}
[[gnu::always_inline]] inline __m512 load_f16(const std::byte* bytes) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
}
// 32 bytes to 16 pairs of 16-bit words.
[[gnu::always_inline]] inline __m512i load_pairs_u8(const std::byte* bytes) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
}
[[gnu::always_inline]] inline __m512i load_pairs_s8(const std::byte* bytes) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
}

// The codes of steps 2 * line and 2 * line + 1 of a group.
template <int kBits>
[[gnu::always_inline]] inline void load_codes(const std::byte* codes, const std::byte* high, int line, __m512i& even,
                                              __m512i& odd) {
  if constexpr (kBits == 8) {
    even = _mm512_loadu_si512(codes + line * 128);
    odd = _mm512_loadu_si512(codes + line * 128 + 64);
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i both = _mm512_loadu_si512(codes + line * 64);
  even = _mm512_and_si512(both, nibble);
  odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
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

constexpr int group_bytes(int bits) { return bits == 8 ? 512 : 256; }
constexpr int high_bytes(int bits) { return bits == 5 ? 64 : bits == 6 ? 128 : 0; }

// sums[r][p] += codes of line (8 inputs) . x
template <int kBits, int R, int P>
[[gnu::always_inline]] inline void dot_line(const std::byte* const (&panels)[P], int64_t high_at, int64_t group,
                                            int line, const std::byte* const (&x)[R], __m512i (&sums)[R][P]) {
  __m512i even[P], odd[P];
  BATON_UNROLL for (int p = 0; p < P; ++p) {
    load_codes<kBits>(panels[p] + group * group_bytes(kBits), panels[p] + high_at + group * high_bytes(kBits), line,
                      even[p], odd[p]);
  }
  BATON_UNROLL for (int r = 0; r < R; ++r) {
    const std::byte* at = x[r] + group * 32 + line * 8;
    const __m512i x_even = broadcast32(at), x_odd = broadcast32(at + 4);
    BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], even[p], x_even);
    BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], odd[p], x_odd);
  }
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

// kOffsetShift: the offset is 1 << kOffsetShift; 0 for none.
template <int kBits, int kOffsetShift, bool kMin>
struct Group32 {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel) {
    const std::byte* panels[P];
    const std::byte* x[R];
    set_pointers<R, P>(t, row, panel, t.layout->panel_bytes, panels, x);
    const int64_t groups = t.features / 32;
    const int64_t high = t.layout->high, scales = t.layout->scales, mins = t.layout->mins;
    __m512 acc[R][P] = {};
    for (int64_t g = t.k_begin / 32; g < t.k_end / 32; ++g) {
      __m512i sums[R][P];
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        __m512i start = _mm512_setzero_si512();
        if constexpr (kOffsetShift > 0) {
          const __m512i sum = broadcast32(t.sums + (row + r) * groups + g);
          start = _mm512_sub_epi32(start, _mm512_slli_epi32(sum, kOffsetShift));
        }
        BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = start;
      }
      BATON_UNROLL for (int line = 0; line < 4; ++line) dot_line<kBits, R, P>(panels, high, g, line, x, sums);
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = load_f16(panels[p] + scales + g * 32);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m512 xs = _mm512_set1_ps(t.x_scales[(row + r) * groups + g]);
          acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]), _mm512_mul_ps(scale, xs), acc[r][p]);
        }
        if constexpr (kMin) {
          const __m512 min = load_f16(panels[p] + mins + g * 32);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            const __m512 scaled_sum = _mm512_set1_ps(t.scaled_sums[(row + r) * groups + g]);
            acc[r][p] = _mm512_fmadd_ps(min, scaled_sum, acc[r][p]);
          }
        }
      }
    }
    store<R, P>(t, row, panel, acc);
  }
};

// q4_k, q5_k: 8 runs of 32 inputs, each with a 6-bit scale and minimum.
template <int kBits>
struct Group256 {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel) {
    const std::byte* panels[P];
    const std::byte* x[R];
    set_pointers<R, P>(t, row, panel, t.layout->panel_bytes, panels, x);
    const int64_t blocks = t.features / 256;
    const PanelLayout layout = *t.layout;
    __m512 acc[R][P] = {};
    for (int64_t b = t.k_begin / 256; b < t.k_end / 256; ++b) {
      __m512i total[R][P] = {};
      for (int pair = 0; pair < 4; ++pair) {
        BATON_UNROLL for (int half = 0; half < 2; ++half) {
          __m512i sums[R][P] = {};
          BATON_UNROLL for (int line = 0; line < 4; ++line) {
            dot_line<kBits, R, P>(panels, layout.high, b * 8 + pair * 2 + half, line, x, sums);
          }
          BATON_UNROLL for (int p = 0; p < P; ++p) {
            const __m512i factors = load_pairs_u8(panels[p] + layout.sub_scales + (b * 4 + pair) * 32);
            const __m512i factor =
                half == 0 ? _mm512_and_si512(factors, _mm512_set1_epi32(0xffff)) : _mm512_srli_epi32(factors, 16);
            BATON_UNROLL for (int r = 0; r < R; ++r) {
              total[r][p] = _mm512_add_epi32(total[r][p], _mm512_mullo_epi32(sums[r][p], factor));
            }
          }
        }
      }
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = load_f16(panels[p] + layout.scales + b * 32);
        const __m512 min = load_f16(panels[p] + layout.mins + b * 32);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          __m512i minimum = _mm512_setzero_si512();
          const int16_t* short_sums = t.short_sums + ((row + r) * blocks + b) * 24;
          BATON_UNROLL for (int pair = 0; pair < 4; ++pair) {
            minimum = _mm512_dpwssd_epi32(minimum, load_pairs_u8(panels[p] + layout.sub_mins + (b * 4 + pair) * 32),
                                          broadcast32(short_sums + pair * 2));
          }
          const __m512 xs = _mm512_set1_ps(t.x_scales[(row + r) * blocks + b]);
          acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[r][p]), _mm512_mul_ps(scale, xs), acc[r][p]);
          acc[r][p] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(minimum), _mm512_mul_ps(min, xs), acc[r][p]);
        }
      }
    }
    store<R, P>(t, row, panel, acc);
  }
};

// q6_k: 16 runs of 16 inputs, each with a signed 8-bit scale.
struct Q6K {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel) {
    const std::byte* panels[P];
    const std::byte* x[R];
    set_pointers<R, P>(t, row, panel, t.layout->panel_bytes, panels, x);
    const int64_t blocks = t.features / 256;
    const PanelLayout layout = *t.layout;
    __m512 acc[R][P] = {};
    for (int64_t b = t.k_begin / 256; b < t.k_end / 256; ++b) {
      // The offset first: -32 times the sum of run sums by run scales.
      __m512i total[R][P] = {};
      for (int group = 0; group < 8; ++group) {
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          const __m512i factors = load_pairs_s8(panels[p] + layout.sub_scales + (b * 8 + group) * 32);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            const int16_t* short_sums = t.short_sums + ((row + r) * blocks + b) * 24 + 8;
            total[r][p] = _mm512_dpwssd_epi32(total[r][p], factors, broadcast32(short_sums + group * 2));
          }
        }
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          total[r][p] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(total[r][p], 5));
        }
      }
      for (int group = 0; group < 8; ++group) {
        BATON_UNROLL for (int half = 0; half < 2; ++half) {
          __m512i sums[R][P] = {};
          dot_line<6, R, P>(panels, layout.high, b * 8 + group, half * 2, x, sums);
          dot_line<6, R, P>(panels, layout.high, b * 8 + group, half * 2 + 1, x, sums);
          BATON_UNROLL for (int p = 0; p < P; ++p) {
            const __m512i factors = load_pairs_s8(panels[p] + layout.sub_scales + (b * 8 + group) * 32);
            const __m512i factor = _mm512_srai_epi32(half == 0 ? _mm512_slli_epi32(factors, 16) : factors, 16);
            BATON_UNROLL for (int r = 0; r < R; ++r) {
              total[r][p] = _mm512_add_epi32(total[r][p], _mm512_mullo_epi32(sums[r][p], factor));
            }
          }
        }
      }
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = load_f16(panels[p] + layout.scales + b * 32);
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m512 xs = _mm512_set1_ps(t.x_scales[(row + r) * blocks + b]);
          acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[r][p]), _mm512_mul_ps(scale, xs), acc[r][p]);
        }
      }
    }
    store<R, P>(t, row, panel, acc);
  }
};

template <bool kHalf>
struct Plain {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel) {
    const std::byte* panels[P];
    const std::byte* x[R];
    set_pointers<R, P>(t, row, panel, t.layout->panel_bytes, panels, x);
    __m512 acc[R][P] = {};
#pragma clang loop unroll_count(4)
    for (int64_t k = t.k_begin; k < t.k_end; ++k) {
      __m512 w[P];
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        w[p] = kHalf ? load_f16(panels[p] + k * 32) : _mm512_loadu_ps(panels[p] + k * 64);
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const __m512 value = _mm512_castsi512_ps(broadcast32(x[r] + k * 4));
        BATON_UNROLL for (int p = 0; p < P; ++p) acc[r][p] = _mm512_fmadd_ps(value, w[p], acc[r][p]);
      }
    }
    store<R, P>(t, row, panel, acc);
  }
};

struct Bf16 {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel) {
    const std::byte* panels[P];
    const std::byte* x[R];
    set_pointers<R, P>(t, row, panel, 64, panels, x);
    __m512 acc[R][P] = {};
#pragma clang loop unroll_count(4)
    for (int64_t k = t.k_begin; k < t.k_end; k += 2) {
      __m512i w[P];
      BATON_UNROLL for (int p = 0; p < P; ++p) w[p] = _mm512_loadu_si512(panels[p] + k * 128);
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const auto value = __builtin_bit_cast(__m512bh, broadcast32(x[r] + k * 2));
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          acc[r][p] = _mm512_dpbf16_ps(acc[r][p], value, __builtin_bit_cast(__m512bh, w[p]));
        }
      }
    }
    store<R, P>(t, row, panel, acc);
  }
};

}  // namespace

TileFunction matmul_tile_avx512(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return run_tile<Plain<false>, 4, 2, 2>;
    case DType::kF16:
      return run_tile<Plain<true>, 4, 2, 2>;
    case DType::kBF16:
      return run_tile<Bf16, 4, 4, 4>;
    case DType::kQ4_0:
      return run_tile<Group32<4, 3, false>, 4, 2, 2>;
    case DType::kQ4_1:
      return run_tile<Group32<4, 0, true>, 4, 2, 2>;
    case DType::kQ5_0:
      return run_tile<Group32<5, 4, false>, 4, 2, 2>;
    case DType::kQ5_1:
      return run_tile<Group32<5, 0, true>, 4, 2, 2>;
    case DType::kQ8_0:
      return run_tile<Group32<8, 7, false>, 4, 2, 2>;
    case DType::kQ4_K:
      return run_tile<Group256<4>, 4, 2, 2>;
    case DType::kQ5_K:
      return run_tile<Group256<5>, 4, 2, 2>;
    case DType::kQ6_K:
      return run_tile<Q6K, 4, 2, 2>;
    default:
      return nullptr;
  }
}

}  // namespace baton::kernels
