// bf16 tiles for AVX-512: few rows with vdpbf16ps, more with two fma a pair of inputs where that is faster.
//
// vdpbf16ps adds the product of the odd input, then that of the even one, each with one rounding, and takes subnormals
// as zero before and after: two fma in that order with MXCSR's DAZ and FTZ set have its bits (matmul_bf16_test.cc).
// Some processors run it at half the fma rate in operations (86 against 176 GOP/s), others at twice it: bf16_method.cc
// measures.
//
// Sketch of fma, 8 rows and 2 panels a pair of inputs: 2 loads, 4 operations that make fp32 of them, 16 broadcasts, 32
// fma: at most 8/9 of the fma peak. The rows become fp32 once for the 4 panels of a tile, in chunks that stay in L1.
#include "kernels/matmul_avx512.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

constexpr int kPanels = 4;
constexpr int kChunkPairs = 256;

struct Bf16 {
  static int64_t panel_step(const MatmulTile&) { return 64; }

  template <int R, int P>
  [[gnu::always_inline]] static void add_range(const MatmulTile&, int, const std::byte* const (&panels)[P],
                                               const std::byte* const (&x)[R], int64_t begin, int64_t end,
                                               __m512 (&acc)[R][P]) {
#pragma clang loop unroll_count(4)
    for (int64_t k = begin; k < end; k += 2) {
      __m512i w[P];
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        prefetch_weights<64>(panels[p] + k * 128);
        w[p] = _mm512_loadu_si512(panels[p] + k * 128);
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const auto value = __builtin_bit_cast(__m512bh, broadcast32(x[r] + k * 2));
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          acc[r][p] = _mm512_dpbf16_ps(acc[r][p], value, __builtin_bit_cast(__m512bh, w[p]));
        }
      }
    }
  }
};

// The two halves of 16 pairs as fp32.
[[gnu::always_inline]] inline __m512 odd_of(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
[[gnu::always_inline]] inline __m512 even_of(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

// A chunk of R rows as fp32. Rows a multiple of 4 KiB apart would share their sets of L1.
template <int R>
struct Rows {
  alignas(64) float odd[R][kChunkPairs + 16];
  alignas(64) float even[R][kChunkPairs + 16];

  // pairs: at most kChunkPairs. x: the first row's first input of the chunk.
  void load(const std::byte* x, int64_t x_stride, int pairs) {
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < pairs; i += 16) {
        const auto mask = static_cast<__mmask16>(pairs - i >= 16 ? 0xffff : (1 << (pairs - i)) - 1);
        const __m512i values = _mm512_maskz_loadu_epi32(mask, x + r * x_stride + i * 4);
        _mm512_store_ps(odd[r] + i, odd_of(values));
        _mm512_store_ps(even[r] + i, even_of(values));
      }
    }
  }
};

// Sums of R rows and a tile's panels.
template <int R>
using Sums = __m512[R][kPanels];

// acc of P panels from `panel` += the chunk's pairs. w: of the tile's first panel, the chunk's first pair.
template <int R, int P>
[[gnu::always_inline]] inline void add_chunk(const std::byte* w, int panel, const Rows<R>& x, int pairs, Sums<R>& acc) {
  __m512 sums[R][P];
  BATON_UNROLL for (int r = 0; r < R; ++r) { BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = acc[r][panel + p]; }
  w += panel * 64;
  for (int i = 0; i < pairs; ++i, w += kPanels * 64) {
    __m512 odd[P], even[P];
    BATON_UNROLL for (int p = 0; p < P; ++p) {
      prefetch_weights<64>(w + p * 64);
      const __m512i values = _mm512_loadu_si512(w + p * 64);
      odd[p] = odd_of(values);
      even[p] = even_of(values);
    }
    BATON_UNROLL for (int r = 0; r < R; ++r) {
      const __m512 value = _mm512_set1_ps(x.odd[r][i]);
      BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = _mm512_fmadd_ps(value, odd[p], sums[r][p]);
    }
    BATON_UNROLL for (int r = 0; r < R; ++r) {
      const __m512 value = _mm512_set1_ps(x.even[r][i]);
      BATON_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = _mm512_fmadd_ps(value, even[p], sums[r][p]);
    }
  }
  BATON_UNROLL for (int r = 0; r < R; ++r) { BATON_UNROLL for (int p = 0; p < P; ++p) acc[r][panel + p] = sums[r][p]; }
}

// acc += the products of a segment. Under DAZ and FTZ, which the compiler does not know of: hence a call.
template <int R>
[[gnu::noinline]] void add_segment(const MatmulTile& t, int row, const KSegment& segment, Sums<R>& acc) {
  constexpr int kAtOnce = R == 8 ? 2 : 4;  // panels whose sums fill the registers
  Rows<R> x;
  for (int64_t k = segment.begin; k < segment.end; k += 2 * kChunkPairs) {
    const int64_t left = (segment.end - k + 1) / 2;
    const int pairs = left < kChunkPairs ? static_cast<int>(left) : kChunkPairs;
    x.load(t.x + row * t.x_stride + k * 2, t.x_stride, pairs);
    for (int panel = 0; panel < kPanels; panel += kAtOnce) {
      add_chunk<R, kAtOnce>(t.panels + k * 128, panel, x, pairs, acc);
    }
  }
}

template <int R>
void multiply_rows(const MatmulTile& t, int row) {
  constexpr unsigned kZeroSubnormals = 0x8040;  // DAZ and FTZ
  const unsigned mxcsr = _mm_getcsr();
  Sums<R> acc, stack[kMaxMergeDepth];
  int depth = 0;
  for (int i = 0; i < t.segment_count; ++i) {
    BATON_UNROLL for (int r = 0; r < R; ++r) {
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
    }
    _mm_setcsr(mxcsr | kZeroSubnormals);
    add_segment<R>(t, row, t.segments[i], acc);
    _mm_setcsr(mxcsr);
    for (int merge = 0; merge < t.segments[i].merges; ++merge) {
      --depth;
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        BATON_UNROLL for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_add_ps(stack[depth][r][p], acc[r][p]);
      }
    }
    if (i + 1 == t.segment_count) break;
    BATON_UNROLL for (int r = 0; r < R; ++r) {
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) stack[depth][r][p] = acc[r][p];
    }
    ++depth;
  }
  for (int r = 0; r < R; ++r) {
    float* out = t.out + (row + r) * kPanels * 16;
    BATON_UNROLL for (int p = 0; p < kPanels; ++p) _mm512_store_ps(out + p * 16, acc[r][p]);
  }
}

}  // namespace

void bf16_dot_tile(const MatmulTile& t) { run_tile<Segmented<Bf16>, 4, 4, 4>(t); }

void bf16_fma_tile(const MatmulTile& t) {
  int row = 0;
  for (; row + 8 <= t.rows; row += 8) multiply_rows<8>(t, row);
  for (; row + 4 <= t.rows; row += 4) multiply_rows<4>(t, row);
  for (; row + 2 <= t.rows; row += 2) run_row_block<Segmented<Bf16>, 2, 4>(t, row);
  for (; row < t.rows; ++row) run_row_block<Segmented<Bf16>, 1, 4>(t, row);
}

TileFunction bf16_tile_avx512() { return bf16_fma_pays() ? bf16_fma_tile : bf16_dot_tile; }

}  // namespace baton::kernels
