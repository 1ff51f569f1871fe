// Cosines and sines of rotary positions, computed once in double.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "parallel/group.h"
#include "tensor/buffer.h"

namespace baton::models {

// Frequency scaling as Hugging Face's modeling_rope_utils.py names it ("linear", "llama3").
struct LinearRopeScaling {
  double factor = 1;
};
struct Llama3RopeScaling {
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double original_max_positions = 8192;
};

// Yarn as DeepSeek's modeling code has it: frequencies below correction(beta_slow) are divided by the factor, those
// above correction(beta_fast) kept, with a linear ramp over the index in between.
struct YarnRopeScaling {
  double factor = 1;
  double original_max_positions = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 1;  // cosines and sines are multiplied by yarn_mscale(mscale) / yarn_mscale(mscale_all_dim)
  double mscale_all_dim =
      0;  // attention scores by the square of yarn_mscale(mscale_all_dim), which is the layer's to do
};
// 0.1 mscale ln(factor) + 1; 1 where the factor is not above 1.
double yarn_mscale(double factor, double mscale);

struct RopeSpec {
  int rope_dim = 0;  // even
  double theta = 10000;
  std::optional<LinearRopeScaling> linear;
  std::optional<Llama3RopeScaling> llama3;
  std::optional<YarnRopeScaling> yarn;
  // GGUF's rope_freqs.weight: each frequency is divided by its factor. Empty: none.
  std::vector<float> frequency_factors;
};

// The angle per position of each pair: theta^(-2i / rope_dim), scaled. [rope_dim / 2]
std::vector<double> rope_frequencies(const RopeSpec& spec);
// [max_positions, rope_dim]: cosines of the pairs, then sines.
std::vector<float> rope_table(const RopeSpec& spec, int64_t max_positions);
// The same once for all ranks of a team, which make the same call; null without rotary dimensions.
Result<std::shared_ptr<tensor::Buffer>> team_rope_table(parallel::Group group, const RopeSpec& spec,
                                                        int64_t max_positions);

}  // namespace baton::models
