#include "engine/sampling/row_math.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/math.h"
#include "tensor/cpu.h"

namespace baton::engine {
namespace {

constexpr size_t kLanes = 16;

// The array forms give the same bits on every instruction set, so the best may be taken.
tensor::Isa best_isa() {
  static const tensor::Isa isa = tensor::detect_isa();
  return isa;
}

}  // namespace

RowMaximum row_maximum(std::span<const float> row) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  std::array<float, kLanes> lanes;
  lanes.fill(kLowest);
  std::array<int, kLanes> nan_lanes{};
  const size_t whole = row.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = row[i + lane];
      lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
      nan_lanes[lane] |= logit != logit;
    }
  }
  for (size_t i = whole; i < row.size(); ++i) {
    lanes[i - whole] = std::max(lanes[i - whole], row[i]);
    nan_lanes[i - whole] |= row[i] != row[i];
  }
  const float maximum = *std::ranges::max_element(lanes);
  const bool has_nan = std::ranges::any_of(nan_lanes, [](int lane) { return lane != 0; });
  if (maximum == kLowest) return {maximum, -1, has_nan};
  return {maximum, static_cast<TokenId>(std::ranges::find(row, maximum) - row.begin()), has_nan};
}

void shift_and_scale(std::span<const float> row, float maximum, float divisor, std::span<float> out) {
  const float* from = row.data();
  float* to = out.data();
  for (size_t i = 0; i < row.size(); ++i) to[i] = (from[i] - maximum) / divisor;
}

void exponentials(std::span<float> values) {
  kernels::exp_exact(values.data(), values.data(), static_cast<int64_t>(values.size()), best_isa());
}

double ordered_sum(std::span<const float> values) {
  std::array<double, kLanes> lanes{};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(values[i + lane]);
  }
  for (size_t i = whole; i < values.size(); ++i) lanes[i - whole] += static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace baton::engine
