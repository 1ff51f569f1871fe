#include "kernels/vec16_portable.h"
//
#include "kernels/latent_impl.h"

namespace baton::kernels {

const LatentOps kLatentPortable = kLatentOps;

}  // namespace baton::kernels
