#include "engine/sampling/noise.h"

#include "engine/sampling/philox.h"
#include "kernels/math.h"

namespace baton::engine {
namespace {

constexpr float kWordToUnit = 0x1p-32f;
// Below this, -log(1 - v) is taken from its series, which keeps all bits of a small v.
constexpr uint32_t kSeriesBelow = 1u << 26;

float exponential(uint32_t word) {
  if (word >= kSeriesBelow) {
    const float rest = (static_cast<float>(~word) + 0.5f) * kWordToUnit;  // 1 - v without its rounding
    return -kernels::log_exact(rest);
  }
  const float v = (static_cast<float>(word) + 0.5f) * kWordToUnit;
  return v * (1.0f + v * (1.0f / 2 + v * (1.0f / 3 + v * (1.0f / 4 + v * (1.0f / 5)))));
}

}  // namespace

std::array<uint32_t, 4> noise_words(const NoiseKey& key, uint32_t group) {
  return philox4x32_10({group, key.output_position, key.prompt_index, key.choice_index},
                       {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

float gumbel(uint32_t word) { return -kernels::log_exact(exponential(word)); }

}  // namespace baton::engine
