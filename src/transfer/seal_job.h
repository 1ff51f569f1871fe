// An offer's blocks being sealed, one rank of one block at a time, so that messages are served in between. The
// producer's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "transfer/producer_fsm.h"
#include "transfer/rank_seals.h"

namespace baton::transfer {

class SealJob {
 public:
  explicit SealJob(SealBlocks work) : work_(std::move(work)) {}

  bool done() const { return generations_.size() == work_.blocks.size(); }
  // The next rank of the block at hand; returns the bytes that were covered. Not once done. No other job may step
  // between two steps of one block.
  int64_t step(RankSeals& seals, int rank_count) {
    const BlockSeal& block = work_.blocks[generations_.size()];
    if (rank_ == 0) seals.begin(block.block, block.tokens, block.state);
    const int64_t covered = seals.seal(rank_, block.block, block.tokens, block.state);
    if (++rank_ < rank_count) return covered;
    rank_ = 0;
    generations_.push_back(seals.generation(block.block, block.state));
    return covered;
  }
  uint64_t offer_id() const { return work_.offer_id; }
  const std::vector<uint64_t>& generations() const { return generations_; }

 private:
  SealBlocks work_;
  std::vector<uint64_t> generations_;
  int rank_ = 0;
};

}  // namespace baton::transfer
