#include "weights/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/float_convert.h"
#include "weights/k_quant_scales.h"

namespace baton::weights {
namespace {

using tensor::DType;

float read_f16(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, 2);
  return tensor::f16_to_float(bits);
}

template <typename T>
T read_as(const uint8_t* bytes) {
  T value{};
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Blocks of 32: element i is in the low nibble of byte i, element i + 16 in the high one.
int nibble(const uint8_t* nibbles, int i) { return i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4; }
int fifth_bit(uint32_t bits, int i) { return static_cast<int>(bits >> i & 1u) << 4; }

// f16 d, 16 nibble bytes
void q4_0(const uint8_t* block, float* out) {
  const float d = read_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

// f16 d, f16 m, 16 nibble bytes
void q4_1(const uint8_t* block, float* out) {
  const float d = read_f16(block);
  const float m = read_f16(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

// f16 d, 32 fifth bits, 16 nibble bytes
void q5_0(const uint8_t* block, float* out) {
  const float d = read_f16(block);
  const auto high = read_as<uint32_t>(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>((nibble(block + 6, i) | fifth_bit(high, i)) - 16);
}

// f16 d, f16 m, 32 fifth bits, 16 nibble bytes
void q5_1(const uint8_t* block, float* out) {
  const float d = read_f16(block);
  const float m = read_f16(block + 2);
  const auto high = read_as<uint32_t>(block + 4);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 8, i) | fifth_bit(high, i)) + m;
}

// f16 d, 32 int8
void q8_0(const uint8_t* block, float* out) {
  const float d = read_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// f16 d, f16 dmin, 12 scale bytes, [q5_k: 32 bytes whose bit s is the fifth bit of sub-block s], 128 nibble bytes:
// sub-blocks 2j and 2j + 1 are the low and high nibbles of bytes [32 j, 32 j + 32).
void q4_k_or_q5_k(const uint8_t* block, float* out, bool five_bits) {
  const float d = read_f16(block);
  const float dmin = read_f16(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* low = five_bits ? block + 48 : block + 16;
  for (int sub = 0; sub < 8; ++sub) {
    const auto [scale, min] = unpack_k_scale(block + 4, sub);
    const float step = d * static_cast<float>(scale);
    const float offset = dmin * static_cast<float>(min);
    for (int i = 0; i < 32; ++i) {
      const int byte = low[sub / 2 * 32 + i];
      int q = sub % 2 == 0 ? byte & 15 : byte >> 4;
      if (five_bits) q |= (high[i] >> sub & 1) << 4;
      out[sub * 32 + i] = step * static_cast<float>(q) - offset;
    }
  }
}

// 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales, f16 d. In each half of 128 elements, quarter k of 32
// has its nibbles in bytes [32 (k % 2), ...) (low for k < 2, else high) and its bit pairs at bit 2 k.
void q6_k(const uint8_t* block, float* out) {
  const float d = read_f16(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int byte = block[half * 64 + quarter % 2 * 32 + i % 32];
    const int low = quarter < 2 ? byte & 15 : byte >> 4;
    const int high = block[128 + half * 32 + i % 32] >> (2 * quarter) & 3;
    const float step = d * static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
    out[i] = step * static_cast<float>((low | high << 4) - 32);
  }
}

// One scale, then codes: the first the even input where a byte holds two.
template <typename Decode>
void scaled_codes(float scale, const uint8_t* codes, int count, Decode decode, float* out) {
  for (int i = 0; i < count; ++i) out[i] = scale * decode(codes, i);
}
int pair_code(const uint8_t* codes, int i) { return i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4; }
float e4m3_code(const uint8_t* codes, int i) { return tensor::e4m3_to_float(codes[i]); }
float e2m1_code(const uint8_t* codes, int i) {
  return 0.5f * static_cast<float>(tensor::e2m1_doubled(static_cast<uint8_t>(pair_code(codes, i))));
}
float int4_code(const uint8_t* codes, int i) { return static_cast<float>(pair_code(codes, i) - 8); }

void dequantize_block(DType dtype, const uint8_t* block, float* out) {
  switch (dtype) {
    case DType::kF32:
      *out = read_as<float>(block);
      return;
    case DType::kF16:
      *out = read_f16(block);
      return;
    case DType::kBF16:
      *out = tensor::bf16_to_float(read_as<uint16_t>(block));
      return;
    case DType::kI8:
      *out = static_cast<float>(read_as<int8_t>(block));
      return;
    case DType::kI32:
      *out = static_cast<float>(read_as<int32_t>(block));
      return;
    case DType::kI64:
      *out = static_cast<float>(read_as<int64_t>(block));
      return;
    case DType::kQ4_0:
      return q4_0(block, out);
    case DType::kQ4_1:
      return q4_1(block, out);
    case DType::kQ5_0:
      return q5_0(block, out);
    case DType::kQ5_1:
      return q5_1(block, out);
    case DType::kQ8_0:
      return q8_0(block, out);
    case DType::kQ4_K:
      return q4_k_or_q5_k(block, out, false);
    case DType::kQ5_K:
      return q4_k_or_q5_k(block, out, true);
    case DType::kQ6_K:
      return q6_k(block, out);
    case DType::kU8:
      *out = static_cast<float>(*block);
      return;
    case DType::kF8E4M3:
      *out = tensor::e4m3_to_float(*block);
      return;
    case DType::kF8E8M0:
      *out = tensor::e8m0_to_float(*block);
      return;
    case DType::kFp8Block:
      return scaled_codes(read_as<float>(block), block + 4, 128, e4m3_code, out);
    case DType::kMxfp8:
      return scaled_codes(tensor::e8m0_to_float(*block), block + 1, 32, e4m3_code, out);
    case DType::kMxfp4:
      return scaled_codes(tensor::e8m0_to_float(*block), block + 1, 32, e2m1_code, out);
    case DType::kInt4Group32:
      return scaled_codes(tensor::bf16_to_float(read_as<uint16_t>(block)), block + 2, 32, int4_code, out);
    case DType::kInt8Channel:
    case DType::kInt4Channel:
    case DType::kInt8Static:
      break;  // their scales lie elsewhere
  }
  BATON_CHECK(false, "dtype {} has no meaning as fp32", static_cast<int>(dtype));
}

}  // namespace

void dequantize_row(DType dtype, const std::byte* row, int64_t elements, float* out) {
  const auto& info = tensor::dtype_info(dtype);
  BATON_CHECK(elements % info.block_elements == 0, "{} elements of {}", elements, info.name);
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < elements; i += info.block_elements) {
    dequantize_block(dtype, block, out + i);
    block += info.block_bytes;
  }
}

}  // namespace baton::weights
