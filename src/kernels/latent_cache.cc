#include "kernels/latent_cache.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/latent_ops.h"

namespace baton::kernels {
namespace {

// Calls store(row of the step, place in the cache) for every row that this rank holds.
template <typename Store>
void write_rows(const TokenCacheView& cache, std::span<const SequenceSlice> slices, ComputePool& pool, Store store) {
  int64_t rows = 0;
  for (const SequenceSlice& slice : slices) rows += slice.row_count;
  pool.parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
    int64_t base = 0;
    for (const SequenceSlice& slice : slices) {
      const int64_t first = std::clamp<int64_t>(begin - base, 0, slice.row_count);
      const int64_t last = std::clamp<int64_t>(end - base, 0, slice.row_count);
      for (int64_t r = first; r < last; ++r) {
        const int64_t position = slice.context_len + r;
        if (!cache.context.holds(position, cache.block_size)) continue;
        std::byte* block = cache.block(cache.context.block_number(slice.block_table, position / cache.block_size));
        store(slice.row_begin + r, block + position % cache.block_size * cache.token_bytes);
      }
      base += slice.row_count;
      if (base >= end) return;
    }
  });
}

}  // namespace

const LatentOps& latent_ops(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return kLatentAvx512;
    case tensor::Isa::kAvx2:
      return kLatentAvx2;
    case tensor::Isa::kPortable:
      break;
  }
  return kLatentPortable;
}

void write_latents(const TokenCacheView& cache, std::span<const SequenceSlice> slices, const float* latent,
                   int64_t latent_stride, const float* rope_key, int64_t rope_stride, tensor::Isa isa,
                   ComputePool& pool) {
  BATON_CHECK(cache.entry.kind == PagedKind::kLatent, "kind={}", static_cast<int>(cache.entry.kind));
  const LatentOps& ops = latent_ops(isa);
  write_rows(cache, slices, pool, [&](int64_t row, std::byte* dst) {
    ops.store_latent(cache.entry, latent + row * latent_stride, rope_key + row * rope_stride, dst);
  });
}

void write_index_keys(const TokenCacheView& cache, std::span<const SequenceSlice> slices, const float* keys,
                      int64_t stride, tensor::Isa isa, ComputePool& pool) {
  BATON_CHECK(cache.entry.kind == PagedKind::kIndexKeys, "kind={}", static_cast<int>(cache.entry.kind));
  const LatentOps& ops = latent_ops(isa);
  write_rows(cache, slices, pool,
             [&](int64_t row, std::byte* dst) { ops.store_index_key(cache.entry, keys + row * stride, dst); });
}

}  // namespace baton::kernels
