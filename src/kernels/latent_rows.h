// Which cache rows a lane of latent attention visits, tile by tile. Internal to this room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kv_view.h"

namespace baton::kernels {

struct LatentTile {
  int count = 0;      // rows found; 0: the lane has no more
  int64_t start = 0;  // dense: position of the first, the others follow
};

// Dense: the tiles of a lane's spans, in ascending position, up to `last`.
class DenseLane {
 public:
  DenseLane(const TokenCacheView& cache, const SequenceSlice& slice, int lane, int64_t last)
      : cache_(cache), slice_(slice), start_(int64_t{lane} * kAttentionSpan), last_(last) {}

  LatentTile next(const std::byte** rows) {
    if (start_ > last_) return {};
    const LatentTile tile = {.count = static_cast<int>(std::min<int64_t>(kAttentionTile, last_ + 1 - start_)),
                             .start = start_};
    int64_t index = start_ / cache_.block_size;
    int64_t offset = start_ % cache_.block_size;
    for (int i = 0; i < tile.count; ++index, offset = 0) {
      const std::byte* block = cache_.block(slice_.block_table[index]);
      const int end = static_cast<int>(std::min<int64_t>(tile.count, i + cache_.block_size - offset));
      for (; i < end; ++i, ++offset) rows[i] = block + offset * cache_.token_bytes;
    }
    start_ += kAttentionTile;
    if (start_ % kAttentionSpan == 0) start_ += int64_t{kAttentionSpan} * (kAttentionLanes - 1);
    return tile;
  }

 private:
  const TokenCacheView& cache_;
  const SequenceSlice& slice_;
  int64_t start_;
  const int64_t last_;
};

// Sparse: the selected positions of a lane's spans, ascending, 128 a tile.
class SparseLane {
 public:
  SparseLane(const TokenCacheView& cache, const SequenceSlice& slice, int lane, int64_t last,
             std::span<const int32_t> selected)
      : cache_(cache), slice_(slice), lane_(lane), last_(last), selected_(selected) {}

  LatentTile next(const std::byte** rows) {
    LatentTile tile;
    while (tile.count < kAttentionTile && cursor_ < selected_.size()) {
      const int64_t position = selected_[cursor_];
      const int64_t span = position / kAttentionSpan;
      if (span % kAttentionLanes != lane_) {
        skip_to((span + (lane_ - span % kAttentionLanes + kAttentionLanes) % kAttentionLanes) * kAttentionSpan);
        continue;
      }
      BATON_CHECK(position >= 0 && position <= last_, "selected position {} of a row at {}", position, last_);
      const std::byte* block = cache_.block(slice_.block_table[position / cache_.block_size]);
      rows[tile.count++] = block + position % cache_.block_size * cache_.token_bytes;
      ++cursor_;
    }
    return tile;
  }

 private:
  void skip_to(int64_t position) {
    const auto from = selected_.begin() + static_cast<std::ptrdiff_t>(cursor_);
    cursor_ = static_cast<size_t>(std::lower_bound(from, selected_.end(), position) - selected_.begin());
  }

  const TokenCacheView& cache_;
  const SequenceSlice& slice_;
  const int lane_;
  const int64_t last_;
  const std::span<const int32_t> selected_;
  size_t cursor_ = 0;
};

}  // namespace baton::kernels
