// What the forms of the indexer's selection share: rows of several slices gathered into groups, and the positions that
// a context rank holds. Internal to this room.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/indexer.h"

namespace baton::kernels {

inline float* aligned_floats(std::span<std::byte> scratch) {
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~uintptr_t{63});
}

// The positions that a context rank holds, in ascending order, by their number.
class HeldPositions {
 public:
  HeldPositions(const ContextSplit& split, int block_size) : split_(split), block_(block_size) {
    BATON_CHECK(block_size % kAttentionSpan == 0, "block_size={}", block_size);
  }
  explicit HeldPositions(const TokenCacheView& cache) : HeldPositions(cache.context, cache.block_size) {}
  // Of those below `positions`.
  int64_t count(int64_t positions) const {
    const int64_t round = block_ * split_.size;
    return positions / round * block_ + std::clamp<int64_t>(positions % round - split_.rank * block_, 0, block_);
  }
  int64_t position(int64_t number) const {
    return (number / block_ * split_.size + split_.rank) * block_ + number % block_;
  }

 private:
  const ContextSplit split_;
  const int64_t block_;
};

// index_scores of the positions held alone, one after the other: scores[row][number of the position / pool]. 768
// divides the block size.
void index_scores_held(const IndexerArgs& args, std::span<const SequenceSlice> slices, float* scores,
                       int64_t scores_stride, std::span<std::byte> scratch, ComputePool& pool);

// Rows whose scores of `positions` each are held at once.
int64_t index_group_rows(int64_t positions, int threads);

// Rows that see so few positions that all are selected come first in a slice.
inline int64_t unscored_rows(const SelectArgs& args, const SequenceSlice& slice) {
  return std::clamp<int64_t>(args.top_k + args.indexer.pool - 1 - slice.context_len, 0, std::max(0, slice.row_count));
}
void select_all(const SelectArgs& args, int64_t row, int64_t positions);
// `to` holds `count` selected pools: makes them positions, and adds what lies behind the row's last whole pool.
void finish_selection(const SelectArgs& args, int64_t row, int64_t positions, int count);

// Rows first .. first + count - 1 of a slice.
inline SequenceSlice part_of(const SequenceSlice& slice, int64_t first, int64_t count) {
  SequenceSlice part = slice;
  part.context_len += first;
  part.row_begin += static_cast<int>(first);
  part.row_count = static_cast<int>(count);
  return part;
}

// One row of a group.
struct GroupRow {
  int64_t index;      // in the group
  int64_t ordinal;    // among the rows of all slices
  int64_t step_row;   // in the step's batch
  int64_t positions;  // that it sees
};

// Rows of several slices whose scores are held at once. Score: (parts) fills the scores; Take: (row) uses one row's.
template <typename Score, typename Take>
class RowGroup {
 public:
  RowGroup(int64_t rows_max, ComputePool& threads, Score score, Take take)
      : rows_max_(rows_max), threads_(threads), score_(score), take_(take) {}

  // ordinal: of the slice's first row.
  void add(const SequenceSlice& slice, int64_t ordinal) {
    for (int64_t r = 0; r < slice.row_count;) {
      const int64_t count = std::min(rows_max_ - rows_, slice.row_count - r);
      ordinals_[part_count_] = ordinal + r;
      parts_[part_count_++] = part_of(slice, r, count);
      rows_ += count;
      r += count;
      if (rows_ == rows_max_ || part_count_ == parts_.size()) flush();
    }
  }

  void flush() {
    const std::span<const SequenceSlice> parts = std::span(parts_).first(part_count_);
    if (rows_ == 0) return;
    score_(parts);
    threads_.parallel_for(rows_, 1, [&](int64_t begin, int64_t end) {
      size_t index = 0;
      int64_t before = 0;
      for (int64_t i = begin; i < end; ++i) {
        while (i >= before + parts[index].row_count) before += parts[index++].row_count;
        const int64_t r = i - before;
        take_(GroupRow{.index = i,
                       .ordinal = ordinals_[index] + r,
                       .step_row = parts[index].row_begin + r,
                       .positions = parts[index].context_len + r + 1});
      }
    });
    part_count_ = 0;
    rows_ = 0;
  }

 private:
  const int64_t rows_max_;
  ComputePool& threads_;
  Score score_;
  Take take_;
  std::array<SequenceSlice, 64> parts_;
  std::array<int64_t, 64> ordinals_;
  size_t part_count_ = 0;
  int64_t rows_ = 0;
};

}  // namespace baton::kernels
