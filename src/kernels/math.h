// exp, log and what is made of them as fixed polynomials, bit-equal on every instruction set: what softmax, gates and
// sampling use in place of libm (rule 9). Scalar forms of exp and log and array forms here; math_impl.h has the form
// for 16 lanes in registers.
#pragma once

#include <cstdint>

#include "tensor/cpu.h"

namespace baton::kernels {

// e^x, within 2 ulp; 0 below -87.33, +inf above 88.72; NaN stays NaN.
float exp_exact(float x);
// Natural logarithm, within 2 ulp for normal x > 0; -inf at 0, NaN below 0.
float log_exact(float x);

// y[i] = exp_exact(x[i]) for i < n; the same bits on every Isa. x and y may be the same array. Any thread.
void exp_exact(const float* x, float* y, int64_t n, tensor::Isa isa);
void log_exact(const float* x, float* y, int64_t n, tensor::Isa isa);
// 1 / (1 + e^-x), within 3 ulp; 0 below -88.72.
void sigmoid_exact(const float* x, float* y, int64_t n, tensor::Isa isa);
// Within 4 ulp; -0 becomes 0.
void tanh_exact(const float* x, float* y, int64_t n, tensor::Isa isa);
// log(1 + e^x), within 3 ulp; 0 below -87.33.
void softplus_exact(const float* x, float* y, int64_t n, tensor::Isa isa);

}  // namespace baton::kernels
