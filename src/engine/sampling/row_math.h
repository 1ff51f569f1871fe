// Passes over one row of logits, in one fixed order that the compiler may still run several entries at a time: entry i
// goes to lane i mod 16, and lanes are joined in their order. Any thread.
#pragma once

#include <span>

#include "base/strong_id.h"

namespace baton::engine {

struct RowMaximum {
  float logit;
  TokenId id;  // the lowest with that logit; -1: every logit is -inf
  bool has_nan;
};
RowMaximum row_maximum(std::span<const float> row);

// out[i] = (row[i] - maximum) / divisor. `out` may be `row`.
void shift_and_scale(std::span<const float> row, float maximum, float divisor, std::span<float> out);
// values[i] = kernels::exp_exact(values[i]), in place.
void exponentials(std::span<float> values);
double ordered_sum(std::span<const float> values);

}  // namespace baton::engine
