// Which cache rows latent attention visits for a row block, lane by lane and tile by tile. Internal to this room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kv_view.h"

namespace baton::kernels {

struct LatentTile {
  int count = 0;  // rows found; 0: no more
  int lane = 0;
  int64_t start = 0;  // dense: position of the first, the others follow
};

// The tiles of lanes [begin, end) up to position `last`, each lane's in ascending position. Dense: 128 positions of the
// lane's spans; sparse (`selected` not null): 128 selected ones.
class LatentWalk {
 public:
  struct Lanes {
    int begin, end;
  };
  LatentWalk(const TokenCacheView& cache, const SequenceSlice& slice, Lanes lanes, int64_t last,
             std::span<const int32_t> selected)
      : cache_(cache), slice_(slice), lane_(lanes.begin), end_(lanes.end), last_(last), selected_(selected) {
    enter_lane();
  }

  // Addresses of the next tile's rows.
  LatentTile next(const std::byte** rows) {
    for (; lane_ < end_; ++lane_, enter_lane()) {
      const LatentTile tile = selected_.data() == nullptr ? next_dense(rows) : next_selected(rows);
      if (tile.count > 0) return tile;
    }
    return {};
  }

 private:
  void enter_lane() {
    start_ = int64_t{lane_} * kAttentionSpan;
    cursor_ = 0;
  }

  LatentTile next_dense(const std::byte** rows) {
    if (start_ > last_) return {};
    const LatentTile tile = {.count = static_cast<int>(std::min<int64_t>(kAttentionTile, last_ + 1 - start_)),
                             .lane = lane_,
                             .start = start_};
    int64_t index = start_ / cache_.block_size;
    int64_t offset = start_ % cache_.block_size;
    for (int i = 0; i < tile.count; ++index, offset = 0) {
      const std::byte* block = cache_.block_at(slice_.block_table, index);
      const int end = static_cast<int>(std::min<int64_t>(tile.count, i + cache_.block_size - offset));
      for (; i < end; ++i, ++offset) rows[i] = block + offset * cache_.token_bytes;
    }
    start_ += kAttentionTile;
    if (start_ % kAttentionSpan == 0) start_ += int64_t{kAttentionSpan} * (kAttentionLanes - 1);
    return tile;
  }

  LatentTile next_selected(const std::byte** rows) {
    LatentTile tile = {.lane = lane_};
    while (tile.count < kAttentionTile && cursor_ < selected_.size()) {
      const int64_t position = selected_[cursor_];
      const int64_t span = position / kAttentionSpan;
      const int64_t ahead = (lane_ - span % kAttentionLanes + kAttentionLanes) % kAttentionLanes;
      if (ahead != 0) {
        skip_to((span + ahead) * kAttentionSpan);
        continue;
      }
      BATON_CHECK(position >= 0 && position <= last_, "selected position {} of a row at {}", position, last_);
      const std::byte* block = cache_.block_at(slice_.block_table, position / cache_.block_size);
      rows[tile.count++] = block + position % cache_.block_size * cache_.token_bytes;
      ++cursor_;
    }
    return tile;
  }

  void skip_to(int64_t position) {
    const auto from = selected_.begin() + static_cast<std::ptrdiff_t>(cursor_);
    cursor_ = static_cast<size_t>(std::lower_bound(from, selected_.end(), position) - selected_.begin());
  }

  const TokenCacheView& cache_;
  const SequenceSlice& slice_;
  int lane_;
  const int end_;
  const int64_t last_;
  const std::span<const int32_t> selected_;  // null data: dense
  int64_t start_ = 0;
  size_t cursor_ = 0;
};

}  // namespace baton::kernels
