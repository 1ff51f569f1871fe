// A whole panel at once: 16 bytes of each of 16 rows become four lines of 64 bytes, by transposing 4 x 4 words. Row by
// row, every word would go to another line, and the panel would pass through the cache 16 times.
#include <cmath>
#include <cstring>

#include "kernels/panel_layout.h"
#include "kernels/panel_pack.h"

namespace baton::kernels {
namespace {

using tensor::DType;

using Words = uint32_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));

Words load(const std::byte* bytes) {
  Words words;
  std::memcpy(&words, bytes, sizeof(words));
  return words;
}
void store(std::byte* bytes, Words words) { std::memcpy(bytes, &words, sizeof(words)); }

// Rows of a panel as they lie in a file.
struct SourceRows {
  const std::byte* first;
  int64_t stride;
  const std::byte* at(int row, int64_t byte) const { return first + row * stride + byte; }
};

// 16 * kChunks bytes of each row, from `byte` on, into as many lines as they have words. make(words of a row) gives the
// words to store; place(four rows' word) the order in which they stand.
template <int kChunks, typename Make, typename Place>
void put_lines(const SourceRows& rows, int64_t byte, std::byte* to, int64_t line_stride, Make make, Place place) {
  for (int quad = 0; quad < 4; ++quad) {  // of rows: four lines of the source are in use at once
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int64_t at = byte + chunk * 16;
      const Words a = make(load(rows.at(4 * quad, at))), b = make(load(rows.at(4 * quad + 1, at)));
      const Words c = make(load(rows.at(4 * quad + 2, at))), d = make(load(rows.at(4 * quad + 3, at)));
      const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                  ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                  cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      std::byte* line = to + chunk * 4 * line_stride + quad * 16;
      store(line, place(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5)));
      store(line + line_stride, place(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7)));
      store(line + 2 * line_stride, place(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5)));
      store(line + 3 * line_stride, place(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)));
    }
  }
}

Words as_is(Words words) { return words; }

// As nibble_line of panel_pack.cc: four bytes of two codes; inputs 0 .. 3 low, 4 .. 7 high.
Words nibble_lines(Words pairs) {
  const auto spread = [](Words two_bytes) {
    const Words apart = (two_bytes | two_bytes << 8) & 0x00ff00ffu;
    return (apart | apart << 4) & 0x0f0f0f0fu;
  };
  return spread(pairs & 0xffffu) | spread(pairs >> 16) << 4;
}

// Of four rows the inputs 0 and 1 of a step, then 2 and 3.
Words fp8_order(Words words) {
  const auto halves = __builtin_bit_cast(Halves, words);
  return __builtin_bit_cast(Words, __builtin_shufflevector(halves, halves, 0, 2, 4, 6, 1, 3, 5, 7));
}

// Words of rows without blocks.
template <typename Make>
void pack_stream(const SourceRows& rows, int64_t row_bytes, std::byte* panel, int64_t line_stride, Make make) {
  int64_t byte = 0;
  for (; byte + 64 <= row_bytes; byte += 64) {
    put_lines<4>(rows, byte, panel + byte / 4 * line_stride, line_stride, make, as_is);
  }
  for (; byte < row_bytes; byte += 16) {
    put_lines<1>(rows, byte, panel + byte / 4 * line_stride, line_stride, make, as_is);
  }
}

void note(int64_t& first_bad, int64_t block, bool good) {
  if (!good && first_bad == kAllBlocksGood) first_bad = block;
}

void pack_nibbles(DType dtype, int64_t features, std::byte* panel, const SourceRows& rows, int64_t* bad) {
  const BlockLayout layout = block_layout(dtype);
  const int scale = scale_bytes(dtype);
  for (int64_t b = 0; b < features / 32; ++b) {
    const int64_t at = b * (scale + 16);
    std::byte* record = panel + b * layout.bytes;
    put_lines<1>(rows, at + scale, record + layout.codes, 64, nibble_lines, as_is);
    for (int row = 0; row < 16; ++row) {
      uint16_t value = 0;
      std::memcpy(&value, rows.at(row, at), static_cast<size_t>(scale));
      std::memcpy(record + layout.scales + row * scale, &value, static_cast<size_t>(scale));
      note(bad[row], b, dtype == DType::kMxfp4 ? value != 255 : (value & 0x7f80u) != 0x7f80u);
    }
  }
}

bool has_e4m3_nan(const std::byte* codes, int64_t count) {
  bool found = false;
  for (int64_t i = 0; i < count; ++i) found |= (codes[i] & std::byte{0x7f}) == std::byte{0x7f};
  return found;
}

template <DType kType>
void pack_fp8(int64_t features, std::byte* panel, const SourceRows& rows, int64_t* bad) {
  constexpr int kInputs = kType == DType::kFp8Block ? 128 : 32;
  constexpr int kScale = kType == DType::kFp8Block ? 4 : 1;
  for (int64_t b = 0; b < features / kInputs; ++b) {
    const int64_t at = b * (kScale + kInputs);
    put_lines<kInputs / 16>(rows, at + kScale, panel + fp8_step_offset(b * kInputs), kFp8StepBytes, as_is, fp8_order);
    for (int row = 0; row < 16; ++row) {
      const std::byte* block = rows.at(row, at);
      std::memcpy(panel + fp8_scale_offset(kType, row, b * kInputs), block, kScale);
      bool good = !has_e4m3_nan(block + kScale, kInputs);
      if constexpr (kType == DType::kMxfp8) {
        good = good && *block != std::byte{255};
      } else {
        float value;
        std::memcpy(&value, block, sizeof(value));
        good = good && std::isfinite(value);
      }
      note(bad[row], b, good);
    }
  }
}

}  // namespace

bool pack_whole_panel(DType dtype, int64_t features, std::byte* panel, const std::byte* first_row, int64_t row_bytes,
                      int64_t (&bad)[16]) {
  const SourceRows rows{first_row, row_bytes};
  for (int64_t& block : bad) block = kAllBlocksGood;
  const bool whole_chunks = row_bytes % 16 == 0;
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
      if (!whole_chunks) return false;
      pack_stream(rows, row_bytes, panel, dtype == DType::kF32 ? 64 : 256, as_is);
      return true;
    case DType::kInt8Channel:
    case DType::kInt8Static:
      if (!whole_chunks) return false;
      pack_stream(rows, row_bytes, panel, 64, [](Words words) { return words ^ 0x80808080u; });
      return true;
    case DType::kInt4Channel:
      if (!whole_chunks) return false;
      pack_stream(rows, row_bytes, panel, 64, [](Words words) { return nibble_lines(words ^ 0x88888888u); });
      return true;
    case DType::kMxfp4:
    case DType::kInt4Group32:
      pack_nibbles(dtype, features, panel, rows, bad);
      return true;
    case DType::kFp8Block:
      pack_fp8<DType::kFp8Block>(features, panel, rows, bad);
      return true;
    case DType::kMxfp8:
      pack_fp8<DType::kMxfp8>(features, panel, rows, bad);
      return true;
    default:
      return false;
  }
}

}  // namespace baton::kernels
