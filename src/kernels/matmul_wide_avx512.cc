// Many rows of x by two panels of 4-bit codes, for AVX-512 with VNNI: codes become bytes once for up to 64 rows, and
// wait in L1. A row's sums are added in the order of few rows (Group32 in matmul_avx512.cc): the same bits.
//
// Sketch, per panel, row and group of 32: 8 dots, and for the scales a conversion, a product and an fma, on two ports:
// 8 / 11 of the dot peak at most; making bytes of codes anew for every 4 rows would take another 5 instructions a row.
// A chunk of 256 inputs is 8 KiB of codes; of a row it reads 256 bytes, whole cache lines.
#include "kernels/matmul_group32_avx512.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

using tensor::DType;

template <DType kType>
struct WideGroup32 {
  static constexpr int kPanels = 2;
  static constexpr int kGroups = 8;  // of a chunk
  static constexpr int kSteps = 8;   // of a group, 4 inputs each

  struct Chunk {
    int groups;
    __m512i codes[kGroups][kSteps][kPanels];
    __m512 scales[kGroups][kPanels], mins[kGroups][kPanels];
  };
  using Rows = __m512[kMaxTileRows][kPanels];

  static void decode(const MatmulTile& t, int64_t first, int64_t end, Chunk& chunk) {
    constexpr BlockLayout layout = block_layout(kType);
    chunk.groups = static_cast<int>(end - first < kGroups ? end - first : kGroups);
    for (int g = 0; g < chunk.groups; ++g) {
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) {
        const std::byte* record = t.panels + p * t.layout->panel_bytes + (first + g) * layout.bytes;
        BATON_UNROLL for (int line = 0; line < 4; ++line) {
          load_codes<kType>(record + layout.codes, nullptr, line, chunk.codes[g][2 * line][p],
                            chunk.codes[g][2 * line + 1][p]);
        }
        chunk.scales[g][p] = load_scales<kType>(record + layout.scales);
        if constexpr (has_min(kType)) chunk.mins[g][p] = load_f16(record + layout.mins);
      }
    }
  }

  // The chunk's groups, `first` the first, into R rows from `row` on.
  template <int R>
  [[gnu::always_inline]] static void add_rows(const MatmulTile& t, const Chunk& chunk, int64_t first, int row,
                                              __m512 (*to)[kPanels]) {
    const int64_t groups = t.features / 32;
    __m512 acc[R][kPanels];
    BATON_UNROLL for (int r = 0; r < R; ++r) { BATON_UNROLL for (int p = 0; p < kPanels; ++p) acc[r][p] = to[r][p]; }
    for (int g = 0; g < chunk.groups; ++g) {
      const std::byte* x = t.x + row * t.x_stride + (first + g) * 32;
      const int64_t at = row * groups + first + g;  // of the first row's scale and sums
      __m512i sums[R][kPanels];
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        __m512i start = _mm512_setzero_si512();
        if constexpr (code_offset_shift(kType) > 0) {
          const __m512i sum = broadcast32(t.sums + at + r * groups);
          start = _mm512_sub_epi32(start, _mm512_slli_epi32(sum, code_offset_shift(kType)));
        }
        BATON_UNROLL for (int p = 0; p < kPanels; ++p) sums[r][p] = start;
      }
      BATON_UNROLL for (int step = 0; step < kSteps; ++step) {
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const __m512i values = broadcast32(x + r * t.x_stride + step * 4);
          BATON_UNROLL for (int p = 0; p < kPanels; ++p) {
            sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], chunk.codes[g][step][p], values);
          }
        }
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const __m512 xs = _mm512_set1_ps(t.x_scales[at + r * groups]);
        BATON_UNROLL for (int p = 0; p < kPanels; ++p) {
          const __m512 scale = _mm512_mul_ps(chunk.scales[g][p], xs);
          acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]), scale, acc[r][p]);
          if constexpr (has_min(kType)) {
            const __m512 scaled_sum = _mm512_set1_ps(t.scaled_sums[at + r * groups]);
            acc[r][p] = _mm512_fmadd_ps(chunk.mins[g][p], scaled_sum, acc[r][p]);
          }
        }
      }
    }
    BATON_UNROLL for (int r = 0; r < R; ++r) { BATON_UNROLL for (int p = 0; p < kPanels; ++p) to[r][p] = acc[r][p]; }
  }

  static void run(const MatmulTile& t) {
    Chunk chunk;
    Rows acc, stack[kMaxMergeDepth];
    int depth = 0;
    for (int i = 0; i < t.segment_count; ++i) {
      const KSegment& segment = t.segments[i];
      for (int r = 0; r < t.rows; ++r) {
        BATON_UNROLL for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
      }
      for (int64_t g = segment.begin / 32; g < segment.end / 32; g += kGroups) {
        decode(t, g, segment.end / 32, chunk);
        int row = 0;
        for (; row + 4 <= t.rows; row += 4) add_rows<4>(t, chunk, g, row, acc + row);
        for (; row < t.rows; ++row) add_rows<1>(t, chunk, g, row, acc + row);
      }
      for (int merge = 0; merge < segment.merges; ++merge) add(t.rows, stack[--depth], acc);
      if (i + 1 < t.segment_count) move(t.rows, acc, stack[depth++]);
    }
    for (int r = 0; r < t.rows; ++r) {
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) _mm512_store_ps(t.out + (r * kPanels + p) * 16, acc[r][p]);
    }
  }

  // to = from, or to = from + to.
  static void move(int rows, const Rows& from, Rows& to) {
    for (int r = 0; r < rows; ++r) {
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) to[r][p] = from[r][p];
    }
  }
  static void add(int rows, const Rows& from, Rows& to) {
    for (int r = 0; r < rows; ++r) {
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) to[r][p] = _mm512_add_ps(from[r][p], to[r][p]);
    }
  }
};

}  // namespace

TileFunction wide_group32_tile_avx512(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return WideGroup32<DType::kQ4_0>::run;
    case DType::kQ4_1:
      return WideGroup32<DType::kQ4_1>::run;
    case DType::kMxfp4:
      return WideGroup32<DType::kMxfp4>::run;
    default:
      return WideGroup32<DType::kInt4Group32>::run;
  }
}

}  // namespace baton::kernels
