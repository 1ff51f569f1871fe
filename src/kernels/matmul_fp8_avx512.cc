// Tiles of e4m3 weights for AVX-512: codes become bf16 in registers by a table of 128 entries (vpermi2b), for
// vdpbf16ps. Formulas: matmul_ref.cc.
//
// Sketch, per panel and 4 inputs: 2 look-ups, 1 logic and 2 unpacks make two registers, which serve 2 dots a row. One
// row reads 64 bytes for 7 instructions, above DRAM's rate. Of 4 rows and 4 panels the 16 sums of a group fill the
// registers and those over groups wait on the stack, where a group of 128 inputs fetches them once. From 16 rows on the
// bf16 of 128 inputs (16 KiB for 4 panels) stays in L1 for up to 64 rows: decoding then costs a twentieth of the dots.
// Either way a row's sums are added in one order.
#include <array>

#include "kernels/matmul_avx512.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

using tensor::DType;

// The bf16 bits of a positive e4m3 code: eeee mmm to (e + 120) mmm 0000; subnormals m * 2^-9 are normal in bf16.
constexpr uint16_t bf16_of_e4m3(int code) {
  const int exponent = code >> 3;
  int mantissa = code & 7;
  if (code == 0x7f) return 0x7fc0;
  if (exponent != 0) return static_cast<uint16_t>((exponent + 120) << 7 | mantissa << 4);
  if (mantissa == 0) return 0;
  int power = 121;  // of a mantissa with bit 3
  for (; (mantissa & 8) == 0; mantissa <<= 1) --power;
  return static_cast<uint16_t>(power << 7 | (mantissa & 7) << 4);
}

constexpr std::array<uint8_t, 128> table_of(int shift) {
  std::array<uint8_t, 128> table{};
  for (int code = 0; code < 128; ++code)
    table[static_cast<size_t>(code)] = static_cast<uint8_t>(bf16_of_e4m3(code) >> shift);
  return table;
}
alignas(64) constexpr std::array<uint8_t, 128> kLowBytes = table_of(0);
alignas(64) constexpr std::array<uint8_t, 128> kHighBytes = table_of(8);

struct Decoder {
  __m512i low[2], high[2], sign;

  [[gnu::always_inline]] Decoder() {
    BATON_UNROLL for (int i = 0; i < 2; ++i) {
      low[i] = _mm512_load_si512(kLowBytes.data() + i * 64);
      high[i] = _mm512_load_si512(kHighBytes.data() + i * 64);
    }
    sign = _mm512_set1_epi8(static_cast<char>(0x80));
  }
  // 64 codes to two steps of 2 inputs.
  [[gnu::always_inline]] void decode(const std::byte* bytes, __m512i (&w)[2]) const {
    const __m512i codes = _mm512_loadu_si512(bytes);
    const __m512i low_bytes = _mm512_permutex2var_epi8(low[0], codes, low[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(high[0], codes, high[1]);
    const __m512i high_bytes = _mm512_ternarylogic_epi32(magnitude, codes, sign, 0xf8);  // a | (b & c)
    w[0] = _mm512_unpacklo_epi8(low_bytes, high_bytes);
    w[1] = _mm512_unpackhi_epi8(low_bytes, high_bytes);
  }
};

template <DType kType>
struct Fp8 {
  static constexpr int kInputs = kType == DType::kFp8Block ? 128 : 32;

  static int64_t panel_step(const MatmulTile&) { return 64; }

  // Of a panel's rows for the group at input k.
  [[gnu::always_inline]] static __m512 load_scales(const std::byte* panel, int64_t k) {
    const std::byte* scales = panel + fp8_scale_offset(kType, 0, k);
    if constexpr (kType == DType::kMxfp8) return load_e8m0<0>(scales);
    return _mm512_loadu_ps(scales);
  }

  template <int R, int P>
  [[gnu::always_inline]] static void add_range(const MatmulTile&, int, const std::byte* const (&panels)[P],
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m512 (&acc)[R][P]) {
    const Decoder decoder;
    const std::byte* codes[P];
    const std::byte* x[R];
    for (int64_t first = begin; first < end; first += kInputs) {
      advance(codes, panels, fp8_step_offset(first));
      advance(x, rows, first * 2);
      __m512 sums[R][P] = {};
#pragma clang loop unroll_count(2)
      for (int step = 0; step < kInputs / 4; ++step) {
        __m512i w[P][2];
        BATON_UNROLL for (int p = 0; p < P; ++p) {
          prefetch_weights<64>(codes[p] + step * kFp8StepBytes);
          decoder.decode(codes[p] + step * kFp8StepBytes, w[p]);
        }
        BATON_UNROLL for (int i = 0; i < 2; ++i) {
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            const auto pair = __builtin_bit_cast(__m512bh, broadcast32(x[r] + step * 8 + i * 4));
            BATON_UNROLL for (int p = 0; p < P; ++p) {
              sums[r][p] = _mm512_dpbf16_ps(sums[r][p], pair, __builtin_bit_cast(__m512bh, w[p][i]));
            }
          }
        }
      }
      BATON_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = load_scales(panels[p], first);
        BATON_UNROLL for (int r = 0; r < R; ++r) acc[r][p] = _mm512_fmadd_ps(sums[r][p], scale, acc[r][p]);
      }
    }
  }
};

// The four panels of a tile over all its rows.
template <DType kType>
struct WideFp8 {
  static constexpr int kPanels = 4;
  static constexpr int kInputs = Fp8<kType>::kInputs;
  // Of a chunk of at most 128 inputs: fewer would read x, whose rows lie far apart, a cache line at a time.
  static constexpr int kGroups = 128 / kInputs;

  // The groups of a chunk as bf16 pairs, and their scales.
  struct Chunk {
    int groups;
    __m512i w[kGroups][kInputs / 2][kPanels];
    __m512 scales[kGroups][kPanels];
  };
  using Rows = __m512[kMaxTileRows][kPanels];

  static void decode(const std::byte* panels, int64_t first, int64_t end, Chunk& chunk) {
    const Decoder decoder;
    const int64_t left = (end - first) / kInputs;
    chunk.groups = left < kGroups ? static_cast<int>(left) : kGroups;
    for (int g = 0; g < chunk.groups; ++g) {
      const int64_t k = first + g * kInputs;
      const std::byte* codes = panels + fp8_step_offset(k);
      for (int step = 0; step < kInputs / 4; ++step) {
        BATON_UNROLL for (int p = 0; p < kPanels; ++p) {
          __m512i w[2];
          decoder.decode(codes + step * kFp8StepBytes + p * 64, w);
          chunk.w[g][step * 2][p] = w[0];
          chunk.w[g][step * 2 + 1][p] = w[1];
        }
      }
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) {
        chunk.scales[g][p] = Fp8<kType>::load_scales(panels + p * 64, k);
      }
    }
  }

  // x points at R rows' first input of the chunk.
  template <int R>
  [[gnu::always_inline]] static void add_rows(const Chunk& chunk, const std::byte* x, int64_t x_stride,
                                              __m512 (*acc)[kPanels]) {
    for (int g = 0; g < chunk.groups; ++g) {
      __m512 sums[R][kPanels] = {};
#pragma clang loop unroll_count(2)
      for (int pair = 0; pair < kInputs / 2; ++pair) {
        BATON_UNROLL for (int r = 0; r < R; ++r) {
          const auto value = __builtin_bit_cast(__m512bh, broadcast32(x + r * x_stride + g * kInputs * 2 + pair * 4));
          BATON_UNROLL for (int p = 0; p < kPanels; ++p) {
            sums[r][p] = _mm512_dpbf16_ps(sums[r][p], value, __builtin_bit_cast(__m512bh, chunk.w[g][pair][p]));
          }
        }
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        BATON_UNROLL for (int p = 0; p < kPanels; ++p) {
          acc[r][p] = _mm512_fmadd_ps(sums[r][p], chunk.scales[g][p], acc[r][p]);
        }
      }
    }
  }

  static void add_chunk(const MatmulTile& t, int64_t first, const Chunk& chunk, Rows& acc) {
    const std::byte* x = t.x + first * 2;
    int row = 0;
    for (; row + 4 <= t.rows; row += 4) add_rows<4>(chunk, x + row * t.x_stride, t.x_stride, acc + row);
    for (; row < t.rows; ++row) add_rows<1>(chunk, x + row * t.x_stride, t.x_stride, acc + row);
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

  static void run(const MatmulTile& t) {
    Chunk chunk;
    Rows acc, stack[kMaxMergeDepth];
    int depth = 0;
    for (int i = 0; i < t.segment_count; ++i) {
      const KSegment& segment = t.segments[i];
      for (int r = 0; r < t.rows; ++r) {
        BATON_UNROLL for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
      }
      for (int64_t first = segment.begin; first < segment.end; first += kGroups * kInputs) {
        decode(t.panels, first, segment.end, chunk);
        add_chunk(t, first, chunk, acc);
      }
      for (int merge = 0; merge < segment.merges; ++merge) add(t.rows, stack[--depth], acc);
      if (i + 1 < t.segment_count) move(t.rows, acc, stack[depth++]);
    }
    for (int r = 0; r < t.rows; ++r) {
      float* out = t.out + r * kPanels * 16;
      BATON_UNROLL for (int p = 0; p < kPanels; ++p) _mm512_store_ps(out + p * 16, acc[r][p]);
    }
  }
};

constexpr int kWideRows = 16;  // from here on

template <DType kType>
void fp8_tile(const MatmulTile& t) {
  if (t.rows < kWideRows) return run_tile<Segmented<Fp8<kType>>, 4, 4, 4>(t);
  WideFp8<kType>::run(t);
}

}  // namespace

TileFunction fp8_tile_avx512(DType dtype) {
  return dtype == DType::kFp8Block ? fp8_tile<DType::kFp8Block> : fp8_tile<DType::kMxfp8>;
}

}  // namespace baton::kernels
