// One arena of an engine: blocks, and behind them the slots of recurrent state, where the model keeps any. Beside it a
// seal table with a record per block and then one per slot. Pure arithmetic.
#pragma once

#include <cstdint>

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

}  // namespace baton::kv
