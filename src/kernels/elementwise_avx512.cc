#include "kernels/vec16_avx512.h"
//
#include "kernels/elementwise_impl.h"

namespace baton::kernels {

const ElementwiseOps kElementwiseAvx512 = kRows;

}  // namespace baton::kernels
