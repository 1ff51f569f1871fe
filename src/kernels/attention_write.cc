// Keys and values into their places in the cache.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/attention_ops.h"

namespace baton::kernels {
namespace {

void write_rows(const PagedKvView& cache, int layer, const SequenceSlice& slice, int first, int last, int kv,
                const float* source, int64_t stride, const AttentionOps& ops) {
  const int64_t row_bytes =
      entry_token_bytes({.kind = PagedKind::kKeysValues, .dim = cache.head_dim, .dtype = cache.dtype});
  for (int r = first; r < last; ++r) {
    const int64_t position = slice.context_len + r;
    if (!cache.context.holds(position, cache.block_size)) continue;
    const int64_t block = cache.context.block_number(slice.block_table, position / cache.block_size);
    const int64_t offset = position % cache.block_size * row_bytes;
    const float* row = source + (slice.row_begin + r) * stride;
    for (int h = 0; h < cache.kv_heads; ++h) {
      ops.store_row(row + h * cache.head_dim, cache.head_dim, cache.dtype, cache.at(block, layer, kv, h) + offset);
    }
  }
}

}  // namespace

void write_kv(const PagedKvView& cache, int layer, std::span<const SequenceSlice> slices, const float* k,
              int64_t k_stride, const float* v, int64_t v_stride, tensor::Isa isa, ComputePool& pool) {
  const AttentionOps& ops = attention_ops(isa);
  int64_t rows = 0;
  for (const SequenceSlice& slice : slices) rows += slice.row_count;
  pool.parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
    int64_t base = 0;
    for (const SequenceSlice& slice : slices) {
      const int first = static_cast<int>(std::clamp<int64_t>(begin - base, 0, slice.row_count));
      const int last = static_cast<int>(std::clamp<int64_t>(end - base, 0, slice.row_count));
      write_rows(cache, layer, slice, first, last, 0, k, k_stride, ops);
      write_rows(cache, layer, slice, first, last, 1, v, v_stride, ops);
      base += slice.row_count;
      if (base >= end) return;
    }
  });
}

}  // namespace baton::kernels
