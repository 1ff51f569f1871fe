#include "kernels/vec16_portable.h"
//
#include "kernels/math_arrays_impl.h"

namespace baton::kernels {

const MathOps kMathPortable = kArrays;

}  // namespace baton::kernels
