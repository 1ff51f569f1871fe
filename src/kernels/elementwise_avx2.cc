#include "kernels/vec16_avx2.h"
//
#include "kernels/elementwise_impl.h"

namespace baton::kernels {

const ElementwiseOps kElementwiseAvx2 = kRows;

}  // namespace baton::kernels
