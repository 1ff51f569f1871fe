// The blocks of one arena: reference counts, the free list and the prefix index. Owned by one thread; pure logic.
//
// A block is held (references > 0) or on the free list. A free block may still be published under a hash: its contents
// are whole, and a prefix hit takes it back. The free list runs from least to most recently freed; blocks that hold
// nothing worth keeping go to its front. Taking a block for new contents unpublishes it and calls on_reuse first, so
// that whoever still reads it (a hand-off) can be told that it changed.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/strong_id.h"
#include "kv/block_hash.h"

namespace baton::kv {

class BlockPool {
 public:
  using OnReuse = std::function<void(BlockId)>;
  explicit BlockPool(int block_count, OnReuse on_reuse = {});

  int block_count() const { return block_count_; }
  int free_count() const { return free_count_; }
  int references(BlockId block) const { return blocks_[index(block)].references; }
  bool published(BlockId block) const { return blocks_[index(block)].hash.has_value(); }

  // `count` blocks for new contents, each with one reference; all or none.
  std::optional<std::vector<BlockId>> take(int count);
  // One more reference; a free block leaves the free list with its contents.
  void retain(BlockId block);
  // One reference less. The last frees the block.
  void release(BlockId block);

  // Names a held block's contents. A block is published once until it is taken again; several blocks may share a hash.
  void publish(BlockId block, const BlockHash& hash);
  // A block with these contents, held or free; the earliest published where there are several.
  std::optional<BlockId> find(const BlockHash& hash) const;
  // Forgets every hash. Held blocks stay held.
  void unpublish_all();

  // Free blocks, next to be taken first. For tests.
  std::vector<BlockId> free_list() const;

 private:
  struct Block {
    int references = 0;
    int previous = 0, next = 0;  // neighbours on the free list
    std::optional<BlockHash> hash;
  };
  int index(BlockId block) const;
  void link_after(int block, int previous);
  void unlink(int block);
  void unpublish(int block);

  const int block_count_;
  const OnReuse on_reuse_;
  int free_count_ = 0;
  std::vector<Block> blocks_;  // [block_count + 1]; the last is the free list's sentinel
  std::unordered_map<BlockHash, std::vector<int>, BlockHashHasher> index_;
};

}  // namespace baton::kv
