#include "kernels/vec16_portable.h"
//
#include "kernels/gated_impl.h"

namespace baton::kernels {

const GatedOps kGatedPortable = kGatedRows;

}  // namespace baton::kernels
