#include "kernels/vec16_avx2.h"
//
#include "kernels/gated_impl.h"

namespace baton::kernels {

const GatedOps kGatedAvx2 = kGatedRows;

}  // namespace baton::kernels
