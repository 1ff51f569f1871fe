// Frames between two ranks that are cut alike: whole entries of a block, or of a slot of recurrent state, which are
// named by their byte offset in an arena. Pure arithmetic over kv::PagedGeometry. Unequal ranks: reshard_plan.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/geometry.h"
#include "transport/mover.h"

namespace baton::transfer {

// A payload: entries of the block, arena order, `tokens` tokens of each unit. For a full block few
// pieces, each as long as its bytes lie together; else one per (entry, part, unit). block: [block_bytes].
std::vector<std::span<const std::byte>> payload_pieces(const kv::PagedGeometry& geometry,
                                                       std::span<const std::byte> block, int tokens,
                                                       kv::EntryRange entries);
// From such a payload into the block at `to` in an arena. checksums: [units of the entries].
transport::Moves payload_moves(const kv::PagedGeometry& geometry, int64_t to, int tokens, kv::EntryRange entries,
                               std::span<const uint64_t> checksums);
}  // namespace baton::transfer
