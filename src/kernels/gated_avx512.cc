#include "kernels/vec16_avx512.h"
//
#include "kernels/gated_impl.h"

namespace baton::kernels {

const GatedOps kGatedAvx512 = kGatedRows;

}  // namespace baton::kernels
