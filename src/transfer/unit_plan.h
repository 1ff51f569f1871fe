// From blocks to the runs of bytes that movers and frames carry. Pure arithmetic over kv::PagedGeometry.
//
// Blocks are named by their byte offset in an arena, so that slots of recurrent state are planned alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/geometry.h"
#include "transport/mover.h"

namespace baton::transfer {

// All units of the block at `from` in a peer's arena into the block at `to` in ours, `tokens` tokens of each.
// checksums: [units_per_block].
void append_arena_moves(const kv::PagedGeometry& geometry, int64_t from, int64_t to, int tokens,
                        std::span<const uint64_t> checksums, std::vector<transport::UnitMove>& moves);

// The payload of a BlockData: entries of the block, arena order, `tokens` tokens of each unit. For a full block few
// pieces, each as long as its bytes lie together; else one per (entry, part, unit). block: [block_bytes].
std::vector<std::span<const std::byte>> payload_pieces(const kv::PagedGeometry& geometry,
                                                       std::span<const std::byte> block, int tokens,
                                                       kv::EntryRange entries);
// From such a payload into the block at `to` in an arena. checksums: [units of the entries].
std::vector<transport::UnitMove> payload_moves(const kv::PagedGeometry& geometry, int64_t to, int tokens,
                                               kv::EntryRange entries, std::span<const uint64_t> checksums);
// Entries from `first` on, at least one, that make a frame of about a megabyte.
kv::EntryRange frame_entries(const kv::PagedGeometry& geometry, int tokens, int first);

}  // namespace baton::transfer
