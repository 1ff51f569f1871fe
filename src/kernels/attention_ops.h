// The pieces of paged attention that depend on the instruction set. Internal to this room.
//
// Keys and values are read as stored, a code as code * scale in fp32.
// Arithmetic, the same bits on every instruction set. For a query row at position p and a head:
//   q'[d]    = q[d] * scale
//   score(t) = fma chain over d = 0, 1, ...: s = fma(q'[d], k[t][d], s), from 0
// A lane has (m, sum, o[d]), at first (-inf, 0, 0). For each of its tiles in ascending position, over t <= p only:
//   m'    = max(m, max_t score(t));  alpha = exp_exact(m - m')
//   w(t)  = exp_exact(score(t) - m')
//   sum   = fma(sum, alpha, tree over 16 partial sums; w(t) goes into partial (t - tile start) mod 16, ascending)
//   o[d]  = o[d] * alpha, then o[d] = fma(w(t), v[t][d], o[d]) for t ascending
// Lanes a, b merge as m = max, ea = exp_exact(ma - m), eb = exp_exact(mb - m), sum = fma(sumb, eb, suma * ea),
// o[d] = fma(ob[d], eb, oa[d] * ea), in the binary tree (0,1) (2,3) ..; an empty lane leaves the other as it is.
// out[d] = o[d] / sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/cpu.h"
#include "tensor/dtype.h"

namespace baton::kernels {

struct AttentionOps {
  // dst[i] = value i of a row of `count`, rounded to dtype; fp8 and i8: codes, then their scale (cache_codec_impl.h).
  void (*store_row)(const float* src, int count, tensor::DType dtype, std::byte* dst);
  // y[i] = x[i] * scale for i < count.
  void (*scale_row)(const float* x, float scale, int count, float* y);
  // keys: [head_dim][128], key t in column t; columns from `count` up to a multiple of 16 are zero.
  void (*load_keys)(const std::byte* const* rows, int count, tensor::DType dtype, int head_dim, float* keys);
  // values: [count][padded], padded = head_dim rounded up to 16, zeros behind head_dim.
  void (*load_values)(const std::byte* const* rows, int count, tensor::DType dtype, int head_dim, int padded,
                      float* values);
  // scores: [queries][128], columns below `count` rounded up to 16. q: [queries][padded].
  void (*scores)(const float* q, int queries, int padded, int head_dim, const float* keys, int count, float* scores);
  // Turns the first `valid` scores of one query into weights, updates m and sum, returns alpha.
  float (*softmax)(float* scores, int valid, float* m, float* sum);
  // o: [queries][padded]; valid[i] positions for query i, ascending over i.
  void (*accumulate)(const float* weights, const int* valid, const float* alpha, int queries, const float* values,
                     int padded, float* o);
  // The same two straight from the cache, without scratch: for few queries, which all see `count` positions. `ahead`:
  // rows that are needed next, fetched into the second-level cache meanwhile (blocks lie apart, so that the hardware's
  // own prefetch ends every few KiB); null for none.
  void (*scores_direct)(const float* q, int queries, int padded, int head_dim, const std::byte* const* rows,
                        const std::byte* const* ahead, int count, tensor::DType dtype, float* scores);
  void (*accumulate_direct)(const float* weights, int count, const float* alpha, int queries,
                            const std::byte* const* rows, const std::byte* const* ahead, tensor::DType dtype,
                            int head_dim, int padded, float* o);
  int direct_queries;  // up to this many queries the direct forms are the faster
  // Merges lane b into lane a; both non-empty.
  void (*merge)(float* ma, float* suma, float* oa, float mb, float sumb, const float* ob, int padded);
  // out[d] = o[d] / sum for d < head_dim.
  void (*finish)(const float* o, float sum, int head_dim, float* out);
};
extern const AttentionOps kAttentionPortable;
extern const AttentionOps kAttentionAvx2;
extern const AttentionOps kAttentionAvx512;

const AttentionOps& attention_ops(tensor::Isa isa);

}  // namespace baton::kernels
