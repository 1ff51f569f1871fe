#include "kernels/vec16_avx2.h"
//
#include "kernels/attention_impl.h"

namespace baton::kernels {

const AttentionOps kAttentionAvx2 = kOps;

}  // namespace baton::kernels
