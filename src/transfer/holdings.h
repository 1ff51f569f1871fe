// What the ranks of one process hold of a model's cache, and where: ours from the engine, a peer's from the handshake.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/rank_arenas.h"
#include "wire/handshake.h"

namespace baton::transfer {

struct Holdings {
  std::vector<kv::RankCache> ranks;
  int context_size = 1;  // a sequence's positions lie in turn on so many ranks
  int block_size = 0;    // tokens of a block on one rank
  int64_t block_count = 0;
  int64_t slot_count = 0;
  kv::RankArenas arenas;

  // Tokens that one block number stands for.
  int64_t block_tokens() const { return int64_t{block_size} * context_size; }
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_tokens() - 1) / block_tokens(); }
  const kv::RankCache& rank(int r) const { return ranks[static_cast<size_t>(r)]; }
  int rank_count() const { return static_cast<int>(ranks.size()); }
  const kv::PagedGeometry& geometry(int r, bool state) const {
    return state ? rank(r).layout.states : rank(r).layout.blocks;
  }
  // Of a block or slot of a rank, from the start of all data.
  int64_t offset(int r, int64_t index, bool state) const {
    return arenas.data_offset(r) + rank(r).layout.offset(index, state);
  }
  // Of the first `tokens` tokens of a block (by its number), how many lie on this rank.
  int tokens_on(int r, int64_t tokens) const {
    const int64_t here = tokens - int64_t{rank(r).context_rank} * block_size;
    return static_cast<int>(here < 0 ? 0 : here > block_size ? block_size : here);
  }
};

// Of ranks whose parts are known. kInvalidArgument names the rank that doesn't go with the others.
Result<Holdings> make_holdings(std::vector<kv::RankCache> ranks, int context_size);
// A rank that is alone and holds all of its model.
kv::RankCache whole_cache(kv::CacheLayout layout);

wire::LayoutDesc describe(const Holdings& holdings, const wire::GridDesc& grid);
// Of a peer's layout, which has passed check_layout. kOutOfRange when so many blocks can't be.
Result<Holdings> holdings_of(const wire::LayoutDesc& layout, int64_t block_count, int64_t slot_count);

}  // namespace baton::transfer
