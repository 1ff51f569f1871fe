#include "kernels/vec16_avx512.h"
//
#include "kernels/math_arrays_impl.h"

namespace baton::kernels {

const MathOps kMathAvx512 = kArrays;

}  // namespace baton::kernels
