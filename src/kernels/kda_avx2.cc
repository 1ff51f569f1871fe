#include "kernels/vec16_avx2.h"
//
#include "kernels/kda_impl.h"

namespace baton::kernels {

const KdaOps kKdaAvx2 = kHeads;

}  // namespace baton::kernels
