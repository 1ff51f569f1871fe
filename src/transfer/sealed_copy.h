// One part of an offer, copied out of the peer's mapped arena: what to move, and whether what was copied is what was
// offered. The peer may reopen the block at any time, so its seal is read before the bytes move and its generation
// again after. Reads the peer's seal table, moves nothing itself; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transfer/rank_seals.h"
#include "transfer/reshard_plan.h"
#include "transport/shm/shm_mover.h"

namespace baton::transfer {

class SealedCopy {
 public:
  // Before the bytes move: the seal must be that of `part`, and moves() says which bytes go where with which checksums.
  // kFailedPrecondition: the block, or slot, is not (any more) the one that was offered. All arguments outlive end().
  Result<void> begin(const RankReaders& seals, const ReshardPlan& plan, const PartCopy& part);
  const PartMoves& moves() const { return moves_; }
  // After they moved, `moved` being how that went. kFailedPrecondition, whatever the checksums said, where the block
  // was reopened meanwhile; else `moved`.
  Result<void> end(const Result<void>& moved) const;

 private:
  const kv::SealReader* seals_ = nullptr;
  const ReshardPlan* plan_ = nullptr;
  const PartCopy* part_ = nullptr;
  std::vector<uint64_t> checksums_;  // of all units of the block
  PartMoves moves_;
};

// Moves and verifies, then what other ranks of ours want of the same. arena: ours, of all ranks. kDataLoss: a checksum
// failed, and nothing of the repeats was done.
Result<void> store(transport::ShmMover& mover, const PartMoves& moves, std::span<const std::byte> source,
                   std::span<std::byte> arena);

}  // namespace baton::transfer
