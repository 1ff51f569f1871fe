// Which rank holds which part of what is cached, as metrics: a rank's tokens by the positions that fall to it, and its
// blocks with KV in them, those of running requests and those kept as prefixes alike. Engine thread.
#pragma once

#include <span>
#include <vector>

#include "base/metrics.h"
#include "base/strong_id.h"
#include "parallel/grid.h"

namespace baton::engine {

class RankMetrics {
 public:
  // Of all ranks of one replica, also those of other processes.
  RankMetrics(MetricRegistry& registry, const parallel::GridSizes& sizes, int block_size, int64_t block_count);

  // The KV of `count` tokens from `first_position` on has been computed, or has come by hand-off, into a sequence's
  // blocks.
  void on_tokens(int64_t first_position, int64_t count, std::span<const BlockId> table);
  // What was in the block is gone.
  void on_reuse(BlockId block) { fill(block, 0); }
  // Once a step.
  void publish();

 private:
  struct PerRank {
    int context_rank = 0;
    Counter tokens;
    Gauge blocks;
  };
  void fill(BlockId block, int64_t tokens);

  int context_size_;
  int block_size_;
  std::vector<PerRank> ranks_;
  std::vector<int64_t> filled_;  // [block numbers]: leading tokens of it that are there
  std::vector<int64_t> blocks_;  // [context ranks]: blocks with any token in them
};

// Of the positions [first, first + count): those that fall to context rank `rank` of `size`, block_size in a row.
int64_t context_tokens(int64_t first, int64_t count, int rank, int size, int block_size);

}  // namespace baton::engine
