// The array forms of math.h, one table for each instruction set. Internal to this room.
#pragma once

#include <cstdint>

namespace baton::kernels {

struct MathOps {
  void (*exp)(const float* x, float* y, int64_t n);
  void (*log)(const float* x, float* y, int64_t n);
  void (*sigmoid)(const float* x, float* y, int64_t n);
  void (*tanh)(const float* x, float* y, int64_t n);
  void (*softplus)(const float* x, float* y, int64_t n);
};
extern const MathOps kMathPortable;
extern const MathOps kMathAvx2;
extern const MathOps kMathAvx512;

}  // namespace baton::kernels
