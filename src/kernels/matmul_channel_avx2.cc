// Tiles of int8 and int4 weights with one scale per output, for AVX2. int8 by int8 is multiplied in 16 bits: vpmaddubsw
// would saturate at 2 * 128 * 128, which static activations reach. Formulas: matmul_ref.cc.
#include "kernels/matmul_avx2.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

using tensor::DType;

// Bytes 0 and 2, or 1 and 3, of each 32-bit lane as 16-bit values.
[[gnu::always_inline]] inline __m256i even_bytes(__m256i v) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); }
[[gnu::always_inline]] inline __m256i odd_bytes(__m256i v) { return _mm256_srai_epi16(v, 8); }

struct Int8 {
  static constexpr int kLineInputs = 4;

  template <int R>
  [[gnu::always_inline]] static void add_lines(const std::byte* panel, const std::byte* const (&x)[R], int64_t lines,
                                               __m256i (&sums)[R][2]) {
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    for (int64_t line = 0; line < lines; ++line) {
      __m256i even[2], odd[2];
      BATON_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256i codes = _mm256_xor_si256(load256(panel + line * 64 + h * 32), sign);  // back to the signed value
        even[h] = even_bytes(codes);
        odd[h] = odd_bytes(codes);
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const __m256i values = broadcast32(x[r] + line * 4);
        const __m256i x_even = even_bytes(values), x_odd = odd_bytes(values);
        BATON_UNROLL for (int h = 0; h < 2; ++h) {
          sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(even[h], x_even));
          sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(odd[h], x_odd));
        }
      }
    }
  }
  static int32_t offset(int32_t) { return 0; }
};

struct Int4 {
  static constexpr int kLineInputs = 8;
  static constexpr int kLines = 4;  // whose sum of 16 products of 15 * 127 fits in 16 bits

  template <int R>
  [[gnu::always_inline]] static void add_lines(const std::byte* panel, const std::byte* const (&x)[R], int64_t lines,
                                               __m256i (&sums)[R][2]) {
    const __m256i nibble = _mm256_set1_epi8(0x0f), ones = _mm256_set1_epi16(1);
    for (int64_t first = 0; first < lines; first += kLines) {
      __m256i words[R][2] = {};
      const int64_t last = first + kLines < lines ? first + kLines : lines;
      for (int64_t line = first; line < last; ++line) {
        BATON_UNROLL for (int h = 0; h < 2; ++h) {
          const __m256i both = load256(panel + line * 64 + h * 32);
          const __m256i even = _mm256_and_si256(both, nibble);
          const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
          BATON_UNROLL for (int r = 0; r < R; ++r) {
            words[r][h] = _mm256_add_epi16(words[r][h], _mm256_maddubs_epi16(even, broadcast32(x[r] + line * 8)));
            words[r][h] = _mm256_add_epi16(words[r][h], _mm256_maddubs_epi16(odd, broadcast32(x[r] + line * 8 + 4)));
          }
        }
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        BATON_UNROLL for (int h = 0; h < 2; ++h) {
          sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(words[r][h], ones));
        }
      }
    }
  }
  static int32_t offset(int32_t sum) { return sum * code_offset(DType::kInt4Channel); }
};

template <typename Codes>
struct Channel {
  template <int R, int P>
  static void run(const MatmulTile& t, int row, int panel_index) {
    static_assert(P == 1);
    const std::byte* panel = t.panels + panel_index * t.layout->panel_bytes;
    const std::byte* x[R];
    set_rows<R>(t, row, x);
    __m256i sums[R][2];
    BATON_UNROLL for (int h = 0; h < 2; ++h) {
      __m256i bias = _mm256_setzero_si256();
      if (t.quant_bias != nullptr) {
        bias = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.quant_bias + panel_index * 16 + h * 8));
      }
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        sums[r][h] = _mm256_sub_epi32(bias, _mm256_set1_epi32(Codes::offset(t.sums[row + r])));
      }
    }
    const int64_t lines = (t.features + Codes::kLineInputs - 1) / Codes::kLineInputs;
    Codes::template add_lines<R>(panel, x, lines, sums);
    __m256 out[R][2];
    BATON_UNROLL for (int h = 0; h < 2; ++h) {
      const __m256 scale = _mm256_loadu_ps(t.channel_scales + panel_index * 16 + h * 8);
      BATON_UNROLL for (int r = 0; r < R; ++r) {
        const __m256 xs = _mm256_set1_ps(t.x_scales[row + r]);
        out[r][h] = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums[r][h]), xs), scale);
      }
    }
    store<R>(t, row, panel_index, out);
  }
};

}  // namespace

TileFunction channel_tile_avx2(DType dtype) {
  if (dtype == DType::kInt4Channel) return run_tile<Channel<Int4>, 2, 1, 1>;
  return run_tile<Channel<Int8>, 2, 1, 1>;
}

}  // namespace baton::kernels
