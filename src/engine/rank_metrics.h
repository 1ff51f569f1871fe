// Which rank holds which part of what is cached, as metrics: a rank's tokens by the positions that fall to it.
#pragma once

#include <vector>

#include "base/metrics.h"
#include "parallel/grid.h"

namespace baton::engine {

class RankMetrics {
 public:
  // Of all ranks of one replica, also those of other processes.
  RankMetrics(MetricRegistry& registry, const parallel::GridSizes& sizes, int block_size);

  // The KV of `count` tokens from `first_position` on has been computed, or has come by hand-off.
  void on_tokens(int64_t first_position, int64_t count);

 private:
  struct PerRank {
    int context_rank = 0;
    Counter tokens;
  };
  const int context_size_;
  const int block_size_;
  std::vector<PerRank> ranks_;
};

// Of the positions [first, first + count): those that fall to context rank `rank` of `size`, block_size in a row.
int64_t context_tokens(int64_t first, int64_t count, int rank, int size, int block_size);

}  // namespace baton::engine
