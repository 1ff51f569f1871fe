// Sampling noise that is counted, not drawn: a token's noise depends on its key alone, never on what was sampled before
// or beside it. So a request may be moved, resumed, batched or speculated on without changing a token.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/strong_id.h"

namespace baton::engine {

struct NoiseKey {
  uint64_t seed = 0;
  uint32_t prompt_index = 0;
  uint32_t choice_index = 0;
  uint32_t output_position = 0;  // of the token to sample; the first output token is 0
};

// Uniform words of the tokens 4 * group ... 4 * group + 3.
std::array<uint32_t, 4> noise_words(const NoiseKey& key, uint32_t group);

// A standard Gumbel variable from a uniform word, by kernels::log_exact: equal on every machine.
float gumbel(uint32_t word);
// At least gumbel(word); needs no logarithm.
inline float gumbel_bound(uint32_t word) {
  return static_cast<float>(std::countl_zero(word) + 1) * 0.69314724f + 1e-3f;
}

}  // namespace baton::engine
