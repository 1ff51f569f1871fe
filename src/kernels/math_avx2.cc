#include "kernels/vec16_avx2.h"
//
#include "kernels/math_arrays_impl.h"

namespace baton::kernels {

const MathOps kMathAvx2 = kArrays;

}  // namespace baton::kernels
