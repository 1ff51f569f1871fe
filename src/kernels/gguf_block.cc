#include "kernels/gguf_block.h"

#include <cstring>

#include "base/check.h"

namespace baton::kernels {
namespace {

using tensor::DType;

uint16_t load16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// 16 bytes to 32 codes: low nibbles are elements 0 to 15, high nibbles 16 to 31.
void read_nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 0x0f;
    codes[i + 16] = bytes[i] >> 4;
  }
}

// Bit i of a 32-bit word is bit 4 of element i.
void read_fifth_bits(const uint8_t* bytes, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | ((bits >> i) & 1u) << 4);
}

// 12 bytes hold 8 scales and 8 minimums of 6 bits: the first four of each whole, the last four in two parts.
void read_k_scales(const uint8_t* s, GgufBlock& block) {
  for (int j = 0; j < 4; ++j) {
    block.sub_scales[j] = s[j] & 63;
    block.sub_mins[j] = s[j + 4] & 63;
    block.sub_scales[j + 4] = static_cast<uint8_t>((s[j + 8] & 0x0f) | (s[j] >> 6) << 4);
    block.sub_mins[j + 4] = static_cast<uint8_t>((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
  }
}

// 128 bytes to 256 codes: 32 bytes serve 64 elements, low nibbles the first 32 of them.
void read_k_nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int chunk = 0; chunk < 4; ++chunk) {
    for (int i = 0; i < 32; ++i) {
      codes[64 * chunk + i] = bytes[32 * chunk + i] & 0x0f;
      codes[64 * chunk + 32 + i] = bytes[32 * chunk + i] >> 4;
    }
  }
}

// Bit j of byte i is bit 4 of element i of sub-block j.
void read_k_fifth_bits(const uint8_t* bytes, uint8_t* codes) {
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < 32; ++i) {
      codes[32 * j + i] = static_cast<uint8_t>(codes[32 * j + i] | ((bytes[i] >> j) & 1) << 4);
    }
  }
}

void read_q6_k(const uint8_t* bytes, GgufBlock& block) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = bytes + 64 * half;
    const uint8_t* high = bytes + 128 + 32 * half;
    uint8_t* codes = block.codes + 128 * half;
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>((low[i] & 0x0f) | (high[i] & 3) << 4);
      codes[i + 32] = static_cast<uint8_t>((low[i + 32] & 0x0f) | (high[i] >> 2 & 3) << 4);
      codes[i + 64] = static_cast<uint8_t>((low[i] >> 4) | (high[i] >> 4 & 3) << 4);
      codes[i + 96] = static_cast<uint8_t>((low[i + 32] >> 4) | (high[i] >> 6) << 4);
    }
  }
  std::memcpy(block.sub_scales, bytes + 192, 16);
  block.scale = load16(bytes + 208);
}

}  // namespace

void read_gguf_block(DType dtype, const std::byte* raw, GgufBlock& block) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(raw);
  if (dtype == DType::kQ6_K) return read_q6_k(bytes, block);
  block.scale = load16(bytes);
  switch (dtype) {
    case DType::kQ4_0:
      return read_nibbles(bytes + 2, block.codes);
    case DType::kQ4_1:
      block.min = load16(bytes + 2);
      return read_nibbles(bytes + 4, block.codes);
    case DType::kQ5_0:
      read_nibbles(bytes + 6, block.codes);
      return read_fifth_bits(bytes + 2, block.codes);
    case DType::kQ5_1:
      block.min = load16(bytes + 2);
      read_nibbles(bytes + 8, block.codes);
      return read_fifth_bits(bytes + 4, block.codes);
    case DType::kQ8_0:
      for (int i = 0; i < 32; ++i) block.codes[i] = bytes[2 + i] ^ 0x80;
      return;
    case DType::kQ4_K:
      block.min = load16(bytes + 2);
      read_k_scales(bytes + 4, block);
      return read_k_nibbles(bytes + 16, block.codes);
    case DType::kQ5_K:
      block.min = load16(bytes + 2);
      read_k_scales(bytes + 4, block);
      read_k_nibbles(bytes + 48, block.codes);
      return read_k_fifth_bits(bytes + 16, block.codes);
    default:
      BATON_CHECK(false, "{} has no blocks", tensor::dtype_name(dtype));
  }
}

}  // namespace baton::kernels
