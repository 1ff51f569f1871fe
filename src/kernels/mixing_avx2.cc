#include "kernels/vec16_avx2.h"
//
#include "kernels/mixing_impl.h"

namespace baton::kernels {

const MixingOps kMixingAvx2 = kMixingRows;

}  // namespace baton::kernels
