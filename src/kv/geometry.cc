#include "kv/geometry.h"

#include <utility>

#include "base/check.h"

namespace baton::kv {
namespace {

constexpr int64_t kEntryAlignment = 64;

int64_t token_bytes(const CacheEntry& entry) { return entry.token_bytes * entry.units * entry.parts; }

}  // namespace

PagedGeometry::PagedGeometry(int block_size, std::vector<CacheEntry> entries)
    : block_size_(block_size), entries_(std::move(entries)) {
  BATON_CHECK(block_size > 0, "block_size={}", block_size);
  int64_t offset = 0;
  for (const auto& entry : entries_) {
    BATON_CHECK(entry.units > 0 && (entry.parts == 1 || entry.parts == 2) && entry.token_bytes > 0,
                "units={} parts={} token_bytes={}", entry.units, entry.parts, entry.token_bytes);
    offset += (token_bytes(entry) * block_size + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment;
    entry_offsets_.push_back(offset);
    first_unit_.push_back(first_unit_.back() + entry.units);
    token_bytes_.push_back(token_bytes_.back() + token_bytes(entry));
  }
  block_bytes_ = offset;
}

int64_t PagedGeometry::sealed_bytes(int tokens, EntryRange range) const {
  const auto first = static_cast<size_t>(range.first), end = static_cast<size_t>(range.end());
  return (token_bytes_[end] - token_bytes_[first]) * tokens;
}

PagedGeometry uniform_geometry(const UniformShape& shape) {
  const CacheEntry entry{.kind = "keys_values",
                         .dtype = std::string(tensor::dtype_name(shape.dtype)),
                         .units = shape.kv_heads,
                         .parts = 2,
                         .token_bytes = tensor::dtype_bytes(shape.dtype, shape.head_dim)};
  return {shape.block_size, std::vector(static_cast<size_t>(shape.layers), entry)};
}

}  // namespace baton::kv
