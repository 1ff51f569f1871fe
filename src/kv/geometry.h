// Where KV lives: what a block holds, and its checksum units. Pure arithmetic; no memory is touched.
//
// The arena is block-major, and a block holds entry after entry what each keeps for block_size tokens, so that one
// block table serves layers of every kind. An entry is [part][unit][token][token_bytes]: GQA has a part for keys and
// one for values and a unit per KV head; a latent or an index key is one part of one unit. Entries start at multiples
// of 64 bytes. A block is one descriptor of a bulk hand-off, an entry of it one of a layerwise hand-off, a unit one of
// a re-sharded one. A checksum unit is (block, entry, unit) with all its parts; no plan cuts below a unit.
//
// A slot of recurrent state is a block of one token in a geometry of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "wire/handshake.h"

namespace baton::kv {

using CacheEntry = wire::LayoutEntry;

// Consecutive entries of a block.
struct EntryRange {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }
};

class PagedGeometry {
 public:
  PagedGeometry() = default;  // keeps nothing
  // block_size and all of an entry's numbers are positive. No entries: layers that keep recurrent state alone.
  PagedGeometry(int block_size, std::vector<CacheEntry> entries);

  bool empty() const { return entries_.empty(); }
  int block_size() const { return block_size_; }  // tokens
  const std::vector<CacheEntry>& entries() const { return entries_; }
  int entry_count() const { return static_cast<int>(entries_.size()); }
  EntryRange all_entries() const { return {0, entry_count()}; }
  int64_t block_bytes() const { return block_bytes_; }  // a multiple of 64

  int units_per_block() const { return first_unit_.back(); }
  // Index of the entry's first unit in a block; units_per_block() of entry_count().
  int first_unit(int entry) const { return first_unit_[static_cast<size_t>(entry)]; }
  int unit_count(EntryRange range) const { return first_unit(range.end()) - first_unit(range.first); }

  // Bytes from a block's start.
  int64_t entry_offset(int entry) const { return entry_offsets_[static_cast<size_t>(entry)]; }
  int64_t unit_offset(int entry, int part, int unit) const {
    const auto& e = entries_[static_cast<size_t>(entry)];
    return entry_offset(entry) + (int64_t{part} * e.units + unit) * e.token_bytes * block_size_;
  }
  // From an entry to the next, where all are alike.
  int64_t entry_stride() const { return entry_offsets_[1]; }
  int64_t entry_bytes(int entry) const { return sealed_bytes(block_size_, {entry, 1}); }
  // Of `tokens` tokens, in all units and parts of these entries.
  int64_t sealed_bytes(int tokens, EntryRange range) const;
  int64_t sealed_bytes(int tokens) const { return sealed_bytes(tokens, all_entries()); }

  bool operator==(const PagedGeometry&) const = default;

 private:
  int block_size_ = 0;
  std::vector<CacheEntry> entries_;
  std::vector<int64_t> entry_offsets_ = {0};  // [entries + 1]
  std::vector<int> first_unit_ = {0};         // [entries + 1]
  std::vector<int64_t> token_bytes_ = {0};    // [entries + 1]: of one token in all entries before
  int64_t block_bytes_ = 0;
};

// Keys and values of one shape in every layer.
struct UniformShape {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;
  tensor::DType dtype = tensor::DType::kBF16;
};
PagedGeometry uniform_geometry(const UniformShape& shape);

}  // namespace baton::kv
