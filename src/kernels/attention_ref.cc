#include "kernels/vec16_portable.h"
//
#include "kernels/attention_impl.h"

namespace baton::kernels {

const AttentionOps kAttentionPortable = kOps;

}  // namespace baton::kernels
