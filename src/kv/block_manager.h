// Block tables of sequences over a BlockPool, and prefix sharing between them. Owned by the engine thread; pure logic.
//
// A table is append-only while its sequence holds blocks. Blocks are shared only when full, and a full block is never
// written again, so sharing needs no copy. Blocks become shareable by publish(), which the caller makes after the step
// that filled them has run: a hit never names contents that are not there yet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kv/block_hash.h"
#include "kv/block_pool.h"

namespace baton::kv {

// What the manager keeps for one sequence. Its tokens never change once hashed; they may be appended to.
struct SequenceBlocks {
  std::string cache_salt;         // extra key of the first block; empty: none
  std::vector<BlockId> table;     // block i holds tokens [i * block_size, (i + 1) * block_size)
  std::vector<BlockHash> hashes;  // of the leading full blocks, as far as asked for
  int64_t published = 0;          // leading blocks of `table` that need no publishing
  uint64_t epoch = 0;             // of the prefix index, when the table began
};

class BlockManager {
 public:
  struct Options {
    int block_count = 0;
    int block_size = 16;
    bool prefix_caching = true;
    std::string hash_seed;
  };
  explicit BlockManager(Options options, BlockPool::OnReuse on_reuse = {});

  int block_size() const { return options_.block_size; }
  int block_count() const { return pool_.block_count(); }
  int free_blocks() const { return pool_.free_count(); }
  int used_blocks() const { return pool_.block_count() - pool_.free_count(); }
  int64_t blocks_for(int64_t tokens) const { return (tokens + options_.block_size - 1) / options_.block_size; }
  const BlockPool& pool() const { return pool_; }

  // Leading full blocks of `tokens` that are cached, leaving at least one token to compute. Takes no references; the
  // answer holds until the next call that takes or frees blocks.
  std::vector<BlockId> find_prefix(SequenceBlocks& sequence, std::span<const TokenId> tokens) const;

  // Starts an empty table with the hit and with new blocks up to `token_capacity`; all or nothing.
  bool begin(SequenceBlocks& sequence, std::span<const BlockId> hit, int64_t token_capacity);
  // Appends blocks until the table covers `token_capacity` tokens; all or nothing.
  bool grow(SequenceBlocks& sequence, int64_t token_capacity);
  // Makes the blocks that the first `computed` tokens fill shareable.
  void publish(SequenceBlocks& sequence, std::span<const TokenId> tokens, int64_t computed);
  // What the sequence computes now may be found by others later.
  bool shares(const SequenceBlocks& sequence) const {
    return options_.prefix_caching && (sequence.table.empty() || sequence.epoch == epoch_);
  }
  // Name of the prefix of `block_count` full blocks, at least one.
  const BlockHash& prefix_hash(SequenceBlocks& sequence, std::span<const TokenId> tokens, int64_t block_count) const;
  // Frees the table, last block first, so that the tail of a prefix is evicted before its head.
  void release(SequenceBlocks& sequence);
  // Takes the blocks away from the sequence, still held: for a hand-off that outlives it.
  std::vector<BlockId> detach(SequenceBlocks& sequence);
  void release_blocks(std::span<const BlockId> blocks);
  // One reference more to each, until release_blocks().
  void hold_blocks(std::span<const BlockId> blocks);

  // Nothing computed before is found again, also not what running sequences publish later.
  void reset_prefix_cache();

 private:
  void extend_hashes(SequenceBlocks& sequence, std::span<const TokenId> tokens, int64_t block_count) const;

  const Options options_;
  const BlockHash root_;
  BlockPool pool_;
  uint64_t epoch_ = 0;
};

}  // namespace baton::kv
