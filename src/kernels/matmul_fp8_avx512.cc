// Tiles of e4m3 weights for AVX-512: codes become bf16 in registers by a table of 128 entries (vpermi2b), for
// vdpbf16ps. Formulas: matmul_ref.cc.
//
// Sketch, per panel and 4 inputs: 2 look-ups, 1 logic and 2 unpacks make two registers, which serve 2 dots a row: of 4
// rows 8 dots to 5 others, so the dot unit stays the limit. A group ends with one fma a row.
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

  static int64_t panel_step(const MatmulTile& t) { return t.layout->panel_bytes; }

  [[gnu::always_inline]] static __m512 load_scales(const std::byte* scales) {
    if constexpr (kType == DType::kMxfp8) return load_e8m0<0>(scales);
    return _mm512_loadu_ps(scales);
  }

  template <int R, int P>
  [[gnu::always_inline]] static void add_range(const MatmulTile&, int, const std::byte* const (&panels)[P],
                                               const std::byte* const (&rows)[R], int64_t begin, int64_t end,
                                               __m512 (&acc)[R][P]) {
    constexpr BlockLayout layout = block_layout(kType);
    const Decoder decoder;
    const std::byte* records[P];
    const std::byte* x[R];
    for (int64_t g = begin / kInputs; g < end / kInputs; ++g) {
      advance(records, panels, g * layout.bytes);
      advance(x, rows, g * kInputs * 2);
      __m512 sums[R][P] = {};
#pragma clang loop unroll_count(2)
      for (int step = 0; step < kInputs / 4; ++step) {
        __m512i w[P][2];
        BATON_UNROLL for (int p = 0; p < P; ++p) decoder.decode(records[p] + layout.codes + step * 64, w[p]);
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
        const __m512 scale = load_scales(records[p] + layout.scales);
        BATON_UNROLL for (int r = 0; r < R; ++r) acc[r][p] = _mm512_fmadd_ps(sums[r][p], scale, acc[r][p]);
      }
    }
  }
};

}  // namespace

TileFunction fp8_tile_avx512(DType dtype) {
  if (dtype == DType::kFp8Block) return run_tile<Segmented<Fp8<DType::kFp8Block>>, 4, 2, 4>;
  return run_tile<Segmented<Fp8<DType::kMxfp8>>, 4, 2, 4>;
}

}  // namespace baton::kernels
