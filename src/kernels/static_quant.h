// How the activations of an int8_static matrix become int8: what its checkpoint says.
#pragma once

namespace baton::kernels {

// Code = clamp(round(x / input_scale) + input_offset, -128, 127), ties to even.
struct StaticQuant {
  float input_scale = 1;  // finite, above 0
  int input_offset = 0;   // -128 .. 127
  bool operator==(const StaticQuant&) const = default;
};

}  // namespace baton::kernels
