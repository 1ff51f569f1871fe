#include "kernels/panel_pack.h"

#include <cmath>
#include <cstring>

#include "kernels/gguf_block.h"
#include "kernels/panel_layout.h"

namespace baton::kernels {
namespace {

using tensor::DType;

uint16_t load16(const std::byte* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
uint32_t load32(const void* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
void store32(std::byte* bytes, uint32_t value) { std::memcpy(bytes, &value, sizeof(value)); }

bool is_finite_f16(uint16_t bits) { return (bits & 0x7c00u) != 0x7c00u; }
bool is_finite_bf16(uint16_t bits) { return (bits & 0x7f80u) != 0x7f80u; }

// Keeps the first block that is not good.
struct BlockCheck {
  int64_t first_bad = kAllBlocksGood;
  void add(int64_t block, bool good) {
    if (!good && first_bad == kAllBlocksGood) first_bad = block;
  }
};

// 32 codes of one row into the parts of their group.
void pack_codes(DType dtype, std::byte* record, int row, int group, const uint8_t* codes) {
  const BlockLayout layout = block_layout(dtype);
  std::byte* to = record + layout.codes + group * layout.group_bytes + row * 4;
  std::byte* high_to = record + layout.high + group * layout.group_bytes + row * 4;
  const int bits = code_bits(dtype);
  if (bits == 8) {
    for (int step = 0; step < 8; ++step) store32(to + step * 64, load32(codes + 4 * step));
    return;
  }
  for (int line = 0; line < 4; ++line) {
    const uint32_t low = load32(codes + 8 * line) & 0x0f0f0f0fu;
    const uint32_t high = load32(codes + 8 * line + 4) & 0x0f0f0f0fu;
    store32(to + line * 64, low | high << 4);
  }
  if (bits == 5) {
    uint32_t word = 0;
    for (int step = 0; step < 8; ++step) word |= (load32(codes + 4 * step) >> 4 & 0x01010101u) << step;
    store32(high_to, word);
  } else if (bits == 6) {
    for (int line = 0; line < 2; ++line) {
      uint32_t word = 0;
      for (int t = 0; t < 4; ++t) word |= (load32(codes + 16 * line + 4 * t) >> 4 & 0x03030303u) << 2 * t;
      store32(high_to + line * 64, word);
    }
  }
}

int64_t pack_gguf_row(DType dtype, int64_t features, std::byte* panel, int row, const std::byte* bytes) {
  const auto& info = tensor::dtype_info(dtype);
  const BlockLayout layout = block_layout(dtype);
  const int pairs = (layout.sub_mins - layout.sub_scales) / 32;  // 0 but for K-quants
  GgufBlock block;
  BlockCheck check;
  for (int64_t b = 0; b < features / info.block_elements; ++b) {
    read_gguf_block(dtype, bytes + b * info.block_bytes, block);
    std::byte* record = panel + b * layout.bytes;
    for (int g = 0; g < info.block_elements / 32; ++g) pack_codes(dtype, record, row, g, block.codes + 32 * g);
    std::memcpy(record + layout.scales + row * 2, &block.scale, 2);
    check.add(b, is_finite_f16(block.scale) && (!has_min(dtype) || is_finite_f16(block.min)));
    if (has_min(dtype)) std::memcpy(record + layout.mins + row * 2, &block.min, 2);
    for (int p = 0; p < pairs; ++p) {
      std::memcpy(record + layout.sub_scales + p * 32 + row * 2, block.sub_scales + 2 * p, 2);
      if (has_min(dtype)) std::memcpy(record + layout.sub_mins + p * 32 + row * 2, block.sub_mins + 2 * p, 2);
    }
  }
  return check.first_bad;
}

// The nibbles of two bytes as the low nibbles of four.
uint32_t spread_nibbles(uint32_t two_bytes) {
  const uint32_t apart = (two_bytes | two_bytes << 8) & 0x00ff00ffu;
  return (apart | apart << 4) & 0x0f0f0f0fu;
}
// Four bytes of two codes, the even input's the low nibble, as a line has them: inputs 0 .. 3 low, 4 .. 7 high.
uint32_t nibble_line(uint32_t pairs) { return spread_nibbles(pairs & 0xffffu) | spread_nibbles(pairs >> 16) << 4; }

// mxfp4 and int4_group32: a scale, then 16 bytes of two codes, the even input's the low nibble.
int64_t pack_nibble_row(DType dtype, int64_t features, std::byte* panel, int row, const std::byte* bytes) {
  const BlockLayout layout = block_layout(dtype);
  const int scale = scale_bytes(dtype);
  BlockCheck check;
  for (int64_t b = 0; b < features / 32; ++b) {
    const std::byte* block = bytes + b * (scale + 16);
    std::byte* record = panel + b * layout.bytes;
    for (int line = 0; line < 4; ++line) {
      store32(record + layout.codes + line * 64 + row * 4, nibble_line(load32(block + scale + 4 * line)));
    }
    std::memcpy(record + layout.scales + row * scale, block, static_cast<size_t>(scale));
    check.add(b, dtype == DType::kMxfp4 ? *block != std::byte{255} : is_finite_bf16(load16(block)));
  }
  return check.first_bad;
}

bool all_e4m3_are_numbers(const std::byte* codes, int count) {
  bool bad = false;
  for (int i = 0; i < count; ++i) bad |= (codes[i] & std::byte{0x7f}) == std::byte{0x7f};
  return !bad;
}

bool is_finite_fp8_scale(DType dtype, const std::byte* scale) {
  if (dtype == DType::kMxfp8) return *scale != std::byte{255};
  float value;
  std::memcpy(&value, scale, sizeof(value));
  return std::isfinite(value);
}

int64_t pack_fp8_row(DType dtype, int64_t features, std::byte* panel, int row, const std::byte* bytes) {
  const int inputs = tensor::dtype_info(dtype).block_elements;
  const int scale = scale_bytes(dtype);
  BlockCheck check;
  for (int64_t b = 0; b < features / inputs; ++b) {
    const std::byte* block = bytes + b * (scale + inputs);
    std::memcpy(panel + fp8_scale_offset(dtype, row, b * inputs), block, static_cast<size_t>(scale));
    for (int k = 0; k < inputs; k += 2) {
      std::memcpy(panel + fp8_code_offset(row, b * inputs + k), block + scale + k, 2);
    }
    check.add(b, is_finite_fp8_scale(dtype, block) && all_e4m3_are_numbers(block + scale, inputs));
  }
  return check.first_bad;
}

// Two's complement to unsigned: value + 128, or in each nibble value + 8. What fills up the last line is multiplied by
// zeros of x.
void pack_channel_row(DType dtype, int64_t features, std::byte* panel, int row, const std::byte* bytes) {
  const bool nibbles = dtype == DType::kInt4Channel;
  const int64_t row_bytes = nibbles ? features / 2 : features;
  const auto pack = [&](int64_t i, uint32_t word) {
    store32(panel + i * 16 + row * 4, nibbles ? nibble_line(word ^ 0x88888888u) : word ^ 0x80808080u);
  };
  int64_t i = 0;
  for (; i + 4 <= row_bytes; i += 4) pack(i, load32(bytes + i));
  if (i == row_bytes) return;
  uint32_t word = 0;
  std::memcpy(&word, bytes + i, static_cast<size_t>(row_bytes - i));
  pack(i, word);
}

// The element size as a constant: a copy of known size is one move.
template <int kSize>
void copy_plain_row(DType dtype, int64_t features, std::byte* panel, int row, const std::byte* bytes) {
  for (int64_t k = 0; k < features; ++k) {
    std::memcpy(panel + plain_offset(dtype, row, k), bytes + k * kSize, kSize);
  }
}

}  // namespace

int64_t pack_panel_row(DType dtype, int64_t features, std::byte* panel, int row, const std::byte* bytes) {
  switch (dtype) {
    case DType::kF32:
      copy_plain_row<4>(dtype, features, panel, row, bytes);
      return kAllBlocksGood;
    case DType::kF16:
    case DType::kBF16:
      copy_plain_row<2>(dtype, features, panel, row, bytes);
      return kAllBlocksGood;
    case DType::kFp8Block:
    case DType::kMxfp8:
      return pack_fp8_row(dtype, features, panel, row, bytes);
    case DType::kMxfp4:
    case DType::kInt4Group32:
      return pack_nibble_row(dtype, features, panel, row, bytes);
    case DType::kInt8Channel:
    case DType::kInt4Channel:
    case DType::kInt8Static:
      pack_channel_row(dtype, features, panel, row, bytes);
      return kAllBlocksGood;
    default:
      return pack_gguf_row(dtype, features, panel, row, bytes);
  }
}

}  // namespace baton::kernels
