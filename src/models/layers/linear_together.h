// Matrices that share their input in one pass over the threads: q, k and v; gate and up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/matmul_together.h"
#include "models/layers/linear.h"

namespace baton::models {

// Where a matrix that shares its input with others puts its outputs.
struct LinearOutput {
  const Linear& linear;
  float* y = nullptr;  // [rows, ...]: the outputs held are written from column 0 on
  int64_t y_stride = 0;
};

// Linear::apply_held of each, in one pass over the threads where all read the input in one format.
inline void apply_together(std::initializer_list<LinearOutput> outputs, QuantizedInput& x, ComputePool& pool) {
  constexpr size_t kMost = 4;
  kernels::MatmulPart parts[kMost];
  size_t count = 0;
  const kernels::PackedMatrix& first = outputs.begin()->linear.weight;
  const auto format = kernels::activation_format(first.spec().dtype);
  const bool alike = outputs.size() <= kMost && std::ranges::all_of(outputs, [&](const LinearOutput& output) {
                       const kernels::PackedMatrix& weight = output.linear.weight;
                       return kernels::activation_format(weight.spec().dtype) == format &&
                              weight.static_quant() == first.static_quant();
                     });
  if (!alike) {
    for (const LinearOutput& output : outputs) output.linear.apply_held(x, output.y, output.y_stride, pool);
    return;
  }
  const auto& quantised = x.as(format, first.spec().isa, pool, first.static_quant());
  for (const auto& [linear, y, y_stride] : outputs) {
    if (linear.out_features() == 0) continue;
    parts[count++] = {
        .w = &linear.weight, .bias = linear.bias.empty() ? nullptr : linear.bias.data(), .y = y, .y_stride = y_stride};
  }
  kernels::matmul_together({parts, count}, quantised, pool);
}

}  // namespace baton::models
