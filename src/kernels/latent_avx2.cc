#include "kernels/vec16_avx2.h"
//
#include "kernels/latent_impl.h"

namespace baton::kernels {

const LatentOps kLatentAvx2 = kLatentOps;

}  // namespace baton::kernels
