// The arenas of a process's ranks in one piece of memory, one after the other, and their seal tables in another. Both
// ends of a hand-off compute the same places from the same layouts. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/cache_layout.h"
#include "kv/seal_table.h"

namespace baton::kv {

class RankArenas {
 public:
  // An arena begins on a page, so that its rank may be the first to touch it.
  static constexpr int64_t kDataBorder = 4096;
  static constexpr int64_t kTableBorder = 64;

  RankArenas() = default;
  void add(const CacheLayout& layout) {
    data_.push_back(data_.back() + round_up(layout.data_bytes(), kDataBorder));
    const int64_t blocks = SealReader::table_bytes(layout.blocks.units_per_block(), layout.block_count);
    const int64_t slots = SealReader::table_bytes(layout.states.units_per_block(), layout.slot_count);
    slot_tables_.push_back(tables_.back() + blocks);
    tables_.push_back(tables_.back() + round_up(blocks + slots, kTableBorder));
  }

  int rank_count() const { return static_cast<int>(slot_tables_.size()); }
  // Bytes from the start of the data.
  int64_t data_offset(int rank) const { return data_[static_cast<size_t>(rank)]; }
  int64_t data_bytes() const { return data_.back(); }
  // Bytes from the start of the tables: of the rank's blocks, and of its slots.
  int64_t block_table_offset(int rank) const { return tables_[static_cast<size_t>(rank)]; }
  int64_t slot_table_offset(int rank) const { return slot_tables_[static_cast<size_t>(rank)]; }
  int64_t table_bytes() const { return tables_.back(); }

 private:
  static int64_t round_up(int64_t bytes, int64_t border) { return (bytes + border - 1) / border * border; }

  std::vector<int64_t> data_ = {0}, tables_ = {0};  // [ranks + 1]
  std::vector<int64_t> slot_tables_;                // [ranks]
};

}  // namespace baton::kv
