// Cosines and sines of rotary positions, computed once in double.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

struct RopeSpec {
  int rope_dim = 0;  // even
  double theta = 10000;
  std::optional<LinearRopeScaling> linear;
  std::optional<Llama3RopeScaling> llama3;
  // GGUF's rope_freqs.weight: each frequency is divided by its factor. Empty: none.
  std::vector<float> frequency_factors;
};

// The angle per position of each pair: theta^(-2i / rope_dim), scaled. [rope_dim / 2]
std::vector<double> rope_frequencies(const RopeSpec& spec);
// [max_positions, rope_dim]: cosines of the pairs, then sines.
std::vector<float> rope_table(const RopeSpec& spec, int64_t max_positions);

}  // namespace baton::models
