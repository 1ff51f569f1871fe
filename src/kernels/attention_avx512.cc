#include "kernels/vec16_avx512.h"
//
#include "kernels/attention_impl.h"

namespace baton::kernels {

const AttentionOps kAttentionAvx512 = kOps;

}  // namespace baton::kernels
