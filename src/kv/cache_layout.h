// The arena of one rank: blocks, and behind them the slots of recurrent state, where the model keeps any. Beside it a
// seal table with a record per block and then one per slot. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/geometry.h"

namespace baton::kv {

struct CacheLayout {
  PagedGeometry blocks;
  PagedGeometry states;  // of one token; empty: the model keeps no recurrent state
  int64_t block_count = 0;
  int64_t slot_count = 0;

  // Bytes from the arena's start.
  int64_t block_offset(int64_t block) const { return block * blocks.block_bytes(); }
  int64_t slot_offset(int64_t slot) const { return block_offset(block_count) + slot * states.block_bytes(); }
  int64_t offset(int64_t index, bool state) const { return state ? slot_offset(index) : block_offset(index); }
  int64_t data_bytes() const { return slot_offset(slot_count); }
};

// Which part of the whole model's cache an entry of a rank is: its units [first_unit, first_unit + entry.units).
struct EntryPart {
  int index = 0;  // among the entries (or state layers) of the whole model
  int first_unit = 0;
  int total_units = 1;  // of the whole model
  bool operator==(const EntryPart&) const = default;
};

// What one rank keeps of a sequence. With a split context of N ranks, block b of a sequence's i-th place holds
// positions
// [(i N + context_rank) block_size, + block_size), and one block number serves all ranks.
struct RankCache {
  CacheLayout layout;                  // of this rank alone: its layers, its units, its positions
  std::vector<EntryPart> entry_parts;  // of layout.blocks' entries, one each
  std::vector<EntryPart> state_parts;  // of layout.states' entries, one each
  int context_rank = 0;
  std::string name;     // "pp0 pcp1 tp3": for messages
  wire::GridDesc grid;  // that it is a rank of; `processes` is not set here
  int stage = 0;        // of the pipeline
};

}  // namespace baton::kv
