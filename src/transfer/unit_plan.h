// From blocks to the runs of bytes that movers and frames carry. Pure arithmetic over kv::PagedGeometry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/geometry.h"
#include "transport/mover.h"

namespace baton::transfer {

// All units of block `from` of a peer's arena into block `to` of ours, `tokens` tokens of each.
// checksums: [units_per_block].
void append_arena_moves(const kv::PagedGeometry& geometry, int64_t from, int64_t to, int tokens,
                        std::span<const uint64_t> checksums, std::vector<transport::UnitMove>& moves);

struct LayerRange {
  int first = 0;
  int count = 0;
};
// The payload of a BlockData: layers of block `block`, arena order, `tokens` tokens of each head. For a full block one
// piece; else one per (layer, k|v, head).
std::vector<std::span<const std::byte>> payload_pieces(const kv::PagedGeometry& geometry,
                                                       std::span<const std::byte> arena, int64_t block, int tokens,
                                                       LayerRange layers);
// From such a payload into block `to` of an arena. checksums: [layers.count * kv_heads].
std::vector<transport::UnitMove> payload_moves(const kv::PagedGeometry& geometry, int64_t to, int tokens,
                                               LayerRange layers, std::span<const uint64_t> checksums);
// How many layers of a block with `tokens` tokens make a frame of about a megabyte.
int layers_per_frame(const kv::PagedGeometry& geometry, int tokens);

}  // namespace baton::transfer
