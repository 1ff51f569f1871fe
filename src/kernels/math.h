// exp and log as fixed polynomials, bit-equal on every instruction set: what softmax, silu and sampling use in place of
// libm (rule 9). Scalar forms here; the vector forms in *_avx2.cc and *_avx512.cc give the same bits lane by lane.
#pragma once

namespace baton::kernels {

// e^x, within 2 ulp; 0 below -87.33, +inf above 88.72; NaN stays NaN.
float exp_exact(float x);
// Natural logarithm, within 2 ulp for normal x > 0; -inf at 0.
float log_exact(float x);

}  // namespace baton::kernels
