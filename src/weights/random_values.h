// The values of random checkpoints: a function of (seed, tensor name, element index) alone. No generator state, no
// libm, so that any thread can make any part, and every machine makes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/hash.h"

namespace baton::weights {

inline uint64_t random_tensor_key(std::string_view tensor_name, uint64_t seed) {
  return xxh3_64(std::as_bytes(std::span(tensor_name)), seed);
}

// SplitMix64's finaliser (Steele, Lea, Flood 2014): all 64 bits of the output depend on all of the input.
inline uint64_t random_mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Nearly normal with deviation 1, within 3.5: four uniform 16-bit numbers summed (deviation 65536 / sqrt(3)), all in
// integers.
inline float random_normal(uint64_t tensor_key, uint64_t index) {
  const uint64_t bits = random_mix(tensor_key + (index + 1) * 0x9e3779b97f4a7c15u);
  int sum = 0;
  for (int lane = 0; lane < 4; ++lane) sum += static_cast<int>(bits >> (16 * lane) & 0xffff);
  return static_cast<float>(sum - 2 * 65535) * (1.7320508f / 65536.0f);
}

}  // namespace baton::weights
