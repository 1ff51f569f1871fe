#include "kernels/vec16_avx2.h"
//
#include "kernels/math_arrays_impl.h"

namespace baton::kernels {

const MathOps kMathAvx2 = {.exp = exp_array, .log = log_array};

}  // namespace baton::kernels
