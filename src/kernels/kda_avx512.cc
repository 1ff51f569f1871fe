#include "kernels/vec16_avx512.h"
//
#include "kernels/kda_impl.h"

namespace baton::kernels {

const KdaOps kKdaAvx512 = kHeads;

}  // namespace baton::kernels
