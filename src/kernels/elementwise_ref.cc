#include "kernels/vec16_portable.h"
//
#include "kernels/elementwise_impl.h"

namespace baton::kernels {

const ElementwiseOps kElementwisePortable = kRows;

}  // namespace baton::kernels
