#include "kernels/vec16_portable.h"
//
#include "kernels/kda_impl.h"

namespace baton::kernels {

const KdaOps kKdaPortable = kHeads;

}  // namespace baton::kernels
