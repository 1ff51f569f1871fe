// Which lanes of attention a context rank holds. Internal to this room.
#pragma once

#include <array>
#include <cstdint>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kv_view.h"

namespace baton::kernels {

// Lanes that begin at or before a position.
inline int lanes_used(int64_t position) {
  return position / kAttentionSpan >= kAttentionLanes ? kAttentionLanes
                                                      : static_cast<int>(position / kAttentionSpan) + 1;
}

class HeldLanes {
 public:
  HeldLanes() = default;
  HeldLanes(const ContextSplit& split, int block_size) {
    constexpr int kRound = kAttentionSpan * kAttentionLanes;
    BATON_CHECK(
        split.size == 1 || (block_size % kAttentionSpan == 0 && kRound % (int64_t{block_size} * split.size) == 0),
        "{} ranks of {} tokens share lanes", split.size, block_size);
    for (int lane = 0; lane < kAttentionLanes; ++lane) {
      if (split.holds(int64_t{lane} * kAttentionSpan, block_size)) lanes_[count_++] = lane;
    }
  }
  int lane(int i) const { return lanes_[i]; }
  // How many of them begin at or before a position.
  int used(int64_t position) const {
    int n = 0;
    while (n < count_ && int64_t{lanes_[n]} * kAttentionSpan <= position) ++n;
    return n;
  }

 private:
  std::array<int, kAttentionLanes> lanes_ = {};
  int count_ = 0;
};

}  // namespace baton::kernels
