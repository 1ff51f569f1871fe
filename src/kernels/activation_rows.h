// One row of activations converted, per instruction set; the three forms give the same bits. Used by ActivationBuffer.
//
// int8: m = max|x| of a group (compared as integers, so that NaN counts as largest); scale = m / 127;
// q = round to nearest even of x * (127 / m). See matmul.h for groups of zeros, NaN and infinities.
//
// Whole rows (RowCodes): the same with one group, or by a StaticQuant, where a row with a NaN or an infinity becomes
// zeros of scale NaN and every other has scale 1.
//
// Functions here are static: an inline one could be linked from the object that was compiled for AVX-512.
#pragma once

#include <cstdint>

#include "kernels/static_quant.h"

namespace baton::kernels {

struct QuantizedRow {
  int8_t* values;       // [features]
  float* scales;        // [features / group]
  int32_t* sums;        // [features / 32]
  float* scaled_sums;   // [features / 32], group 32 only
  int16_t* short_sums;  // [features / 256, 24], group 256 only
};

// group: 32 or 256.
using QuantizeRowFunction = void (*)(const float* x, int64_t features, int group, const QuantizedRow& out);
void quantize_row_ref(const float* x, int64_t features, int group, const QuantizedRow& out);
void quantize_row_avx2(const float* x, int64_t features, int group, const QuantizedRow& out);
void quantize_row_avx512(const float* x, int64_t features, int group, const QuantizedRow& out);

struct RowCodes {
  int8_t* values;  // [features]
  float* scale;
  int32_t* sum;  // of the codes
};
using Int8RowFunction = void (*)(const float* x, int64_t features, const RowCodes& out);
void int8_row_ref(const float* x, int64_t features, const RowCodes& out);
void int8_row_avx2(const float* x, int64_t features, const RowCodes& out);
void int8_row_avx512(const float* x, int64_t features, const RowCodes& out);

using StaticRowFunction = void (*)(const float* x, int64_t features, StaticQuant quant, const RowCodes& out);
void static_row_ref(const float* x, int64_t features, StaticQuant quant, const RowCodes& out);
void static_row_avx2(const float* x, int64_t features, StaticQuant quant, const RowCodes& out);
void static_row_avx512(const float* x, int64_t features, StaticQuant quant, const RowCodes& out);

using Bf16RowFunction = void (*)(const float* x, int64_t features, uint16_t* out);
void bf16_row_ref(const float* x, int64_t features, uint16_t* out);
void bf16_row_avx2(const float* x, int64_t features, uint16_t* out);
void bf16_row_avx512(const float* x, int64_t features, uint16_t* out);

struct GroupScale {
  float scale;    // what a code is worth
  float inverse;  // what x is multiplied by; 0 where the group's codes are all 0
};
// max_bits: the largest |x| of the group, as bits.
static inline GroupScale group_scale(uint32_t max_bits) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr uint32_t kSmallest = 0x03800000u;  // 2^-120: below, 127 / m overflows
  if (max_bits >= kInfinity) return {__builtin_nanf(""), 0.0f};
  if (max_bits < kSmallest) return {0.0f, 0.0f};
  const float maximum = __builtin_bit_cast(float, max_bits);
  return {maximum / 127.0f, 127.0f / maximum};
}

// The sums of a group of `group` codes whose runs of 16 sum to sums16, as the formats need them.
static inline void store_sums(const int32_t* sums16, int64_t begin, int group, float scale, const QuantizedRow& out) {
  if (group == 32) {
    const int32_t sum = sums16[0] + sums16[1];
    out.sums[begin / 32] = sum;
    out.scaled_sums[begin / 32] = static_cast<float>(sum) * scale;
    return;
  }
  int16_t* short_sums = out.short_sums + begin / 256 * 24;
  for (int j = 0; j < 8; ++j) {
    const int32_t sum = sums16[2 * j] + sums16[2 * j + 1];
    out.sums[begin / 32 + j] = sum;
    short_sums[j] = static_cast<int16_t>(sum);
  }
  for (int j = 0; j < 16; ++j) short_sums[8 + j] = static_cast<int16_t>(sums16[j]);
}

}  // namespace baton::kernels
