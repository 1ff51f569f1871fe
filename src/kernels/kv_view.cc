#include "kernels/kv_view.h"

#include "base/check.h"

namespace baton::kernels {
namespace {

bool is_quantised(tensor::DType dtype) { return dtype == tensor::DType::kF8E4M3 || dtype == tensor::DType::kI8; }

void check_context(const CacheView& view) {
  const ContextSplit& split = view.context;
  BATON_CHECK(split.size == 1 || (0 <= split.rank && split.rank < split.size &&
                                  view.context_blocks.size() == static_cast<size_t>(split.size)),
              "context rank {} of {}, {} bases", split.rank, split.size, view.context_blocks.size());
}

}  // namespace

int64_t entry_token_bytes(const PagedEntry& entry) {
  if (!is_quantised(entry.dtype)) return tensor::dtype_bytes(entry.dtype, int64_t{entry.dim} + entry.rope_dim);
  switch (entry.kind) {
    case PagedKind::kLatent:
      return entry.dim + (entry.dim + kLatentScaleGroup - 1) / kLatentScaleGroup * 4 + entry.rope_dim * 2;
    case PagedKind::kIndexKeys:
      return entry.dim + (entry.dtype == tensor::DType::kI8 ? 2 : 4);
    case PagedKind::kKeysValues:
      return entry.dim + 4;
  }
  return 0;
}

int64_t entry_block_bytes(const PagedEntry& entry, int block_size) {
  const int parts = entry.kind == PagedKind::kKeysValues ? 2 : 1;
  return entry_token_bytes(entry) * block_size * entry.heads * parts;
}

PagedKvView CacheView::keys_values(int entry) const {
  const PagedEntry& e = entries[entry];
  BATON_CHECK(e.kind == PagedKind::kKeysValues, "entry {}", entry);
  check_context(*this);
  const int64_t head = entry_token_bytes(e) * block_size;
  return {.base = blocks + entry_offsets[entry],
          .dtype = e.dtype,
          .block_size = block_size,
          .kv_heads = e.heads,
          .head_dim = e.dim,
          .block_stride = block_stride,
          .layer_stride = head * e.heads * 2,
          .kv_stride = head * e.heads,
          .head_stride = head,
          .context = context,
          .context_bases = context.size == 1 ? nullptr : context_blocks.data(),
          .context_offset = entry_offsets[entry]};
}

TokenCacheView CacheView::tokens(int entry) const {
  const PagedEntry& e = entries[entry];
  BATON_CHECK(e.kind != PagedKind::kKeysValues, "entry {}", entry);
  check_context(*this);
  return {.base = blocks + entry_offsets[entry],
          .entry = e,
          .block_size = block_size,
          .block_stride = block_stride,
          .token_bytes = entry_token_bytes(e),
          .context = context,
          .context_bases = context.size == 1 ? nullptr : context_blocks.data(),
          .context_offset = entry_offsets[entry]};
}

}  // namespace baton::kernels
