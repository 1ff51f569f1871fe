#include "kernels/vec16_avx512.h"
//
#include "kernels/mixing_impl.h"

namespace baton::kernels {

const MixingOps kMixingAvx512 = kMixingRows;

}  // namespace baton::kernels
