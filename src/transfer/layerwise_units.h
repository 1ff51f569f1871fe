// From blocks to the runs of bytes that the frames of a push carry: one entry of a block, or of a slot. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/geometry.h"
#include "transfer/pull_connector.h"
#include "transport/mover.h"

namespace baton::transfer {

// An entry's bytes in a frame: parts and units in arena order, `tokens` tokens of each. block: [block_bytes]. Few
// pieces, each as long as its bytes lie together.
std::vector<std::span<const std::byte>> entry_pieces(const kv::PagedGeometry& geometry,
                                                     std::span<const std::byte> block, int tokens, int entry);
// From byte `from` of such a payload into the block at byte `to` of an arena. checksums: [units of the entry].
void append_entry_moves(const kv::PagedGeometry& geometry, int64_t from, int64_t to, int tokens, int entry,
                        std::span<const uint64_t> checksums, transport::Moves& moves);
// kUnimplemented but for an engine of one rank, which holds the whole model's cache.
Result<void> check_one_rank(const PullConnectorOptions& options);

}  // namespace baton::transfer
