// Tiles of int8 and int4 weights with one scale per output, for AVX-512 with VNNI. The integer sum runs over all of K,
// in whatever order: it is exact. Formulas: matmul_ref.cc.
//
// Sketch: of 4 rows and 2 panels a step of 4 inputs is 8 vpdpbusd for 2 loads of weights (int4: 1, an and, a shift) and
// 4 broadcasts: the dot unit is the limit. One row reads 64 bytes of weights a dot, above DRAM's rate.
#include "kernels/matmul_avx512.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

using tensor::DType;

template <DType kType>
struct Channel {
  static constexpr bool kNibbles = kType == DType::kInt4Channel;

  // sums += the products of 4 inputs, the first at byte `at` of the rows.
  template <int R, int P>
  [[gnu::always_inline]] static void add_step(const __m512i (&w)[P], const std::byte* const (&x)[R], int64_t at,
                                              __m512i (&sums)[R][P]) {
    BATON_UNROLL for (int r = 0; r < R; ++r) {
      const __m512i values = broadcast32(x[r] + at);
      BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], w[p], values);
    }
  }

  // The inputs of a line of 64 bytes a panel: 4 of int8, 8 of int4.
  template <int R, int P>
  [[gnu::always_inline]] static void add_line(const std::byte* const (&panels)[P], const std::byte* const (&x)[R],
                                              int64_t line, __m512i (&even)[R][P], __m512i (&odd)[R][P]) {
    __m512i w[P];
    BATON_UNROLL for (int p = 0; p < P; ++p) {
      if constexpr (R <= 2) prefetch_weights<64>(panels[p] + line * 64);  // more rows: the load ports are busy
      w[p] = _mm512_loadu_si512(panels[p] + line * 64);
    }
    if constexpr (!kNibbles) return add_step<R, P>(w, x, line * 4, even);
    const __m512i nibble = _mm512_set1_epi8(0x0f);
    __m512i part[P];
    BATON_UNROLL for (int p = 0; p < P; ++p) part[p] = _mm512_and_si512(w[p], nibble);
    add_step<R, P>(part, x, line * 8, even);
    BATON_UNROLL for (int p = 0; p < P; ++p) part[p] = _mm512_and_si512(_mm512_srli_epi16(w[p], 4), nibble);
    add_step<R, P>(part, x, line * 8 + 4, odd);
  }

  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel) {
    const std::byte* panels[P];
    const std::byte* x[R];
    set_pointers<R, P>(t, row, panel, t.layout->panel_bytes, panels, x);
    // Two sums an output, so that few outputs do not wait for the dot unit.
    __m512i sums[R][P], odd[R][P] = {};
    BATON_UNROLL for (int p = 0; p < P; ++p) {
      const __m512i bias =
          t.quant_bias == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(t.quant_bias + (panel + p) * 16);
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const __m512i offset = _mm512_slli_epi32(_mm512_set1_epi32(t.sums[row + r]), code_offset_shift(kType));
        sums[r][p] = _mm512_sub_epi32(bias, offset);
      }
    }
    constexpr int kLineInputs = kNibbles ? 8 : 4;
    const int64_t lines = (t.features + kLineInputs - 1) / kLineInputs;
    int64_t line = 0;
#pragma clang loop unroll_count(2)
    for (; line + 2 <= lines; line += 2) {
      add_line<R, P>(panels, x, line, sums, odd);
      add_line<R, P>(panels, x, line + 1, odd, sums);  // int8 uses the first sum alone
    }
    if (line < lines) add_line<R, P>(panels, x, line, sums, odd);
    __m512 out[R][P];
    BATON_UNROLL for (int p = 0; p < P; ++p) {
      const __m512 scale = _mm512_loadu_ps(t.channel_scales + (panel + p) * 16);
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(sums[r][p], odd[r][p]));
        out[r][p] = _mm512_mul_ps(_mm512_mul_ps(sum, _mm512_set1_ps(t.x_scales[row + r])), scale);
      }
    }
    store<R, P>(t, row, panel, out);
  }
};

}  // namespace

TileFunction channel_tile_avx512(DType dtype) {
  if (dtype == DType::kInt4Channel) return run_tile<Channel<DType::kInt4Channel>, 4, 2, 1>;
  return run_tile<Channel<DType::kInt8Channel>, 4, 2, 1>;
}

}  // namespace baton::kernels
