#include "kernels/vec16_portable.h"
//
#include "kernels/math_arrays_impl.h"

namespace baton::kernels {

const MathOps kMathPortable = {.exp = exp_array, .log = log_array};

}  // namespace baton::kernels
