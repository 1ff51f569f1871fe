// One head of one slice of kda.h, for each instruction set. Internal to this room.
//
// Orders that every form keeps: the convolution adds its taps oldest first; sums over a head's key_dim for the norms
// and for q.k have 16 interleaved partial sums, added as a tree; S^T k and S^T q add even and odd keys apart, ascending
// with fma, then the two. o = fma(q.k, u, (diag(exp g) S)^T q), which is S^T q after the update.
#pragma once

#include "kernels/kda.h"

namespace baton::kernels {

struct KdaOps {
  // Tokens of `slice` for head `head`. rate: exp(a_log[head]); state: the head's, of a sequence that has begun.
  void (*head)(const KdaArgs& args, const SequenceSlice& slice, int head, float rate, float* state);
};
extern const KdaOps kKdaPortable;
extern const KdaOps kKdaAvx2;
extern const KdaOps kKdaAvx512;

}  // namespace baton::kernels
