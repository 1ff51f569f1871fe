#include "kernels/vec16_avx512.h"
//
#include "kernels/latent_impl.h"

namespace baton::kernels {

const LatentOps kLatentAvx512 = kLatentOps;

}  // namespace baton::kernels
