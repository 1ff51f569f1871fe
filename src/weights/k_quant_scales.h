// Eight 6-bit scales and eight 6-bit minima in the 12 bytes that open a Q4_K or Q5_K super-block.
//
// Bytes 0-3: scales 0-3 in the low six bits; bytes 4-7: minima 0-3. Bytes 8-11: the low four bits of scale 4-7 and, in
// the high nibble, of minimum 4-7; their upper two bits sit in the top bits of bytes 0-3 (scales) and 4-7 (minima).
#pragma once

#include <cstdint>

namespace baton::weights {

struct ScaleAndMin {
  uint8_t scale = 0;
  uint8_t min = 0;
};

inline ScaleAndMin unpack_k_scale(const uint8_t* packed, int index) {
  if (index < 4) {
    return {static_cast<uint8_t>(packed[index] & 63), static_cast<uint8_t>(packed[index + 4] & 63)};
  }
  const int low = packed[index + 4];
  return {static_cast<uint8_t>((low & 15) | (packed[index - 4] >> 6 << 4)),
          static_cast<uint8_t>((low >> 4) | (packed[index] >> 6 << 4))};
}

// `packed` must begin as zeros; indices may come in any order. scale and min are below 64.
inline void pack_k_scale(uint8_t* packed, int index, ScaleAndMin value) {
  if (index < 4) {
    packed[index] |= value.scale;
    packed[index + 4] |= value.min;
    return;
  }
  packed[index + 4] |= static_cast<uint8_t>((value.scale & 15) | (value.min & 15) << 4);
  packed[index - 4] |= static_cast<uint8_t>(value.scale >> 4 << 6);
  packed[index] |= static_cast<uint8_t>(value.min >> 4 << 6);
}

}  // namespace baton::weights
