#include "models/layers/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace baton::models {
namespace {

// Llama 3.1: wavelengths beyond original / low are stretched by the factor, those below original / high kept, with a
// linear blend in between (modeling_rope_utils.py, _compute_llama3_parameters).
double llama3_scaled(double frequency, const Llama3RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < scaling.original_max_positions / scaling.high_frequency_factor) return frequency;
  if (wavelength > scaling.original_max_positions / scaling.low_frequency_factor) return frequency / scaling.factor;
  const double blend = (scaling.original_max_positions / wavelength - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - blend) * frequency / scaling.factor + blend * frequency;
}

// The pair, as a real number, that turns `rotations` times over the original context.
double yarn_correction(double rotations, const RopeSpec& spec) {
  return spec.rope_dim * std::log(spec.yarn->original_max_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(spec.theta));
}

double yarn_scaled(double frequency, double index, const RopeSpec& spec) {
  const double low = std::max(0.0, std::floor(yarn_correction(spec.yarn->beta_fast, spec)));
  const double high = std::min(spec.rope_dim - 1.0, std::ceil(yarn_correction(spec.yarn->beta_slow, spec)));
  const double ramp = std::clamp((index - low) / (high == low ? 0.001 : high - low), 0.0, 1.0);
  return frequency / spec.yarn->factor * ramp + frequency * (1 - ramp);
}

}  // namespace

double yarn_mscale(double factor, double mscale) { return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1; }

std::vector<double> rope_frequencies(const RopeSpec& spec) {
  std::vector<double> frequencies(spec.rope_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double frequency = std::pow(spec.theta, -2.0 * static_cast<double>(i) / spec.rope_dim);
    if (spec.linear) frequency /= spec.linear->factor;
    if (spec.llama3) frequency = llama3_scaled(frequency, *spec.llama3);
    if (spec.yarn) frequency = yarn_scaled(frequency, static_cast<double>(i), spec);
    if (!spec.frequency_factors.empty()) frequency /= spec.frequency_factors[i];
    frequencies[i] = frequency;
  }
  return frequencies;
}

std::vector<float> rope_table(const RopeSpec& spec, int64_t max_positions) {
  const std::vector<double> frequencies = rope_frequencies(spec);
  const size_t pairs = frequencies.size();
  double amplitude = 1;
  if (spec.yarn) {
    amplitude =
        yarn_mscale(spec.yarn->factor, spec.yarn->mscale) / yarn_mscale(spec.yarn->factor, spec.yarn->mscale_all_dim);
  }
  std::vector<float> table(static_cast<size_t>(max_positions) * spec.rope_dim);
  for (int64_t position = 0; position < max_positions; ++position) {
    float* row = table.data() + position * spec.rope_dim;
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      row[i] = static_cast<float>(std::cos(angle) * amplitude);
      row[pairs + i] = static_cast<float>(std::sin(angle) * amplitude);
    }
  }
  return table;
}

Result<std::shared_ptr<tensor::Buffer>> team_rope_table(parallel::Group group, const RopeSpec& spec,
                                                        int64_t max_positions) {
  std::shared_ptr<tensor::Buffer> table;
  if (spec.rope_dim == 0) return table;
  BATON_TRY_ASSIGN(table, group.share(static_cast<size_t>(max_positions * spec.rope_dim) * sizeof(float)));
  if (group.rank() == 0) std::ranges::copy(rope_table(spec, max_positions), table->as<float>());
  group.barrier();
  return table;
}

}  // namespace baton::models
