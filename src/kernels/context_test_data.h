// A cache that is spread over context ranks, for tests: one arena a rank, as an engine lays them out, all of one
// process. And the grids of ranks that the lanes allow.
#pragma once

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_view.h"
#include "kernels/latent_test_data.h"

namespace baton::kernels::test {

// A context split, and how it is run.
struct Spread {
  int ranks = 1;
  int block_size = 16;
  int threads = 1;
  std::string text() const {
    return "ranks " + std::to_string(ranks) + " block " + std::to_string(block_size) + " threads " +
           std::to_string(threads);
  }
};

// Every number of ranks with every interleave of 768, 1536 and 3072 that rule 4 allows.
inline std::vector<Spread> spreads() {
  std::vector<Spread> list;
  for (int ranks : {1, 2, 4, 8, 16}) {
    for (int block : {768, 1536, 3072}) {
      if (12288 % (ranks * block) == 0) list.push_back({ranks, block, 1 + static_cast<int>(list.size()) % 3});
    }
  }
  return list;
}

// Whether a test takes this split on this instruction set: all on the machine's own; of the others each split with some
// cache type, since what a split changes is the same code for all.
inline bool takes(const Spread& spread, Isa isa, DType dtype) {
  if (isa == tensor::detect_isa()) return true;
  const auto type = std::find(std::begin(kCacheTypes), std::end(kCacheTypes), dtype) - std::begin(kCacheTypes);
  const int number = std::countr_zero(static_cast<unsigned>(spread.ranks)) * 3 + spread.block_size / 1536;
  return (number + static_cast<int>(isa) + type) % std::ssize(kCacheTypes) == 0;
}

class SpreadCache {
 public:
  SpreadCache(std::vector<PagedEntry> entries, const Spread& spread, int64_t tokens)
      : entries_(std::move(entries)), spread_(spread) {
    for (const PagedEntry& entry : entries_) {
      offsets_.push_back(stride_ + 32);
      stride_ += 32 + (entry_block_bytes(entry, spread.block_size) + 3) / 4 * 4;
    }
    const int64_t round = int64_t{spread.block_size} * spread.ranks;
    const int64_t blocks = (tokens + round - 1) / round;
    table_.resize(blocks);
    std::iota(table_.begin(), table_.end(), 1);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(5));
    for (int rank = 0; rank < spread.ranks; ++rank) {
      arenas_.emplace_back(stride_ * (blocks + 1), std::byte{0xff});
      bases_.push_back(arenas_.back().data());
    }
  }
  const int32_t* table() const { return table_.data(); }
  const Spread& spread() const { return spread_; }
  CacheView view(int rank) const {
    CacheView view = {.blocks = bases_[rank],
                      .block_size = spread_.block_size,
                      .block_stride = stride_,
                      .entries = entries_,
                      .entry_offsets = offsets_};
    if (spread_.ranks == 1) return view;
    view.context = {.size = spread_.ranks, .rank = rank};
    view.context_blocks = bases_;
    return view;
  }
  std::span<const std::byte> arena(int rank) const { return arenas_[rank]; }
  std::span<const int32_t> blocks() const { return table_; }

 private:
  std::vector<PagedEntry> entries_;
  Spread spread_;
  std::vector<int64_t> offsets_;
  int64_t stride_ = 0;
  std::vector<int32_t> table_;
  std::vector<std::vector<std::byte>> arenas_;
  std::vector<std::byte*> bases_;
};

inline constexpr int64_t kSpreadTokens = 14'000;

// What a step computes of a sequence whose cache is full: single rows with one, some and all lanes, some entered again;
// rows that begin a lane; several rows across a lane's border; none. Their rows in the step are in another order, with
// a gap.
inline std::vector<SequenceSlice> ragged_slices(const int32_t* table) {
  const auto slice = [&](int64_t context, int row, int count) {
    return SequenceSlice{.block_table = table, .context_len = context, .row_begin = row, .row_count = count};
  };
  return {slice(kSpreadTokens - 1, 3, 1),
          slice(0, 0, 1),
          slice(99, 1, 1),
          slice(5000, 0, 0),
          slice(767, 2, 1),
          slice(768, 5, 1),
          slice(3070, 6, 5),
          slice(12'286, 11, 4),
          slice(9300, 15, 1),
          slice(1, 16, 3),
          slice(13'000, 19, 2)};
}
inline constexpr int kSpreadRows = 21;
inline int64_t row_total(std::span<const SequenceSlice> slices) {
  int64_t rows = 0;
  for (const SequenceSlice& slice : slices) rows += slice.row_count;
  return rows;
}

// Calls write(slice) for all tokens of a sequence, in chunks of uneven sizes.
template <typename Write>
void write_in_chunks(const int32_t* table, Write write) {
  int64_t size = 1;
  for (int64_t begin = 0; begin < kSpreadTokens; begin += size, size = size * 7 % 2999 + 1) {
    write(SequenceSlice{.block_table = table,
                        .context_len = begin,
                        .row_begin = static_cast<int>(begin),
                        .row_count = static_cast<int>(std::min(size, kSpreadTokens - begin))});
  }
}

}  // namespace baton::kernels::test
