#include "kernels/vec16_portable.h"
//
#include "kernels/mixing_impl.h"

namespace baton::kernels {

const MixingOps kMixingPortable = kMixingRows;

}  // namespace baton::kernels
