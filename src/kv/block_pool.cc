#include "kv/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace baton::kv {

BlockPool::BlockPool(int block_count, OnReuse on_reuse) : block_count_(block_count), on_reuse_(std::move(on_reuse)) {
  BATON_CHECK(block_count > 0, "block_count={}", block_count);
  blocks_.resize(static_cast<size_t>(block_count) + 1);
  blocks_[static_cast<size_t>(block_count)].previous = block_count;
  blocks_[static_cast<size_t>(block_count)].next = block_count;
  for (int block = 0; block < block_count; ++block) {
    link_after(block, blocks_[static_cast<size_t>(block_count)].previous);
  }
}

int BlockPool::index(BlockId block) const {
  BATON_CHECK(block.value >= 0 && block.value < block_count_, "block={} of {}", block.value, block_count_);
  return block.value;
}

void BlockPool::link_after(int block, int previous) {
  const int next = blocks_[previous].next;
  blocks_[block].previous = previous;
  blocks_[block].next = next;
  blocks_[previous].next = block;
  blocks_[next].previous = block;
  ++free_count_;
}

void BlockPool::unlink(int block) {
  blocks_[blocks_[block].previous].next = blocks_[block].next;
  blocks_[blocks_[block].next].previous = blocks_[block].previous;
  --free_count_;
}

std::optional<std::vector<BlockId>> BlockPool::take(int count) {
  if (count > free_count_) return std::nullopt;
  std::vector<BlockId> taken;
  taken.reserve(static_cast<size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) {
    const int block = blocks_[block_count_].next;
    unlink(block);
    unpublish(block);
    blocks_[block].references = 1;
    taken.emplace_back(block);
    if (on_reuse_) on_reuse_(BlockId(block));
  }
  return taken;
}

void BlockPool::retain(BlockId block) {
  const int i = index(block);
  if (blocks_[i].references++ == 0) unlink(i);
}

void BlockPool::release(BlockId block) {
  const int i = index(block);
  BATON_CHECK(blocks_[i].references > 0, "block {} released once too often", block);
  if (--blocks_[i].references > 0) return;
  link_after(i, blocks_[i].hash ? blocks_[block_count_].previous : block_count_);
}

void BlockPool::publish(BlockId block, const BlockHash& hash) {
  const int i = index(block);
  BATON_CHECK(blocks_[i].references > 0 && !blocks_[i].hash, "block {} published while free, or twice", block);
  blocks_[i].hash = hash;
  index_[hash].push_back(i);
}

std::optional<BlockId> BlockPool::find(const BlockHash& hash) const {
  const auto found = index_.find(hash);
  if (found == index_.end()) return std::nullopt;
  return BlockId(found->second.front());
}

void BlockPool::unpublish(int block) {
  if (!blocks_[block].hash) return;
  const auto found = index_.find(*blocks_[block].hash);
  std::erase(found->second, block);
  if (found->second.empty()) index_.erase(found);
  blocks_[block].hash.reset();
}

void BlockPool::unpublish_all() {
  index_.clear();
  for (auto& block : blocks_) block.hash.reset();
}

std::vector<BlockId> BlockPool::free_list() const {
  std::vector<BlockId> list;
  for (int block = blocks_[block_count_].next; block != block_count_; block = blocks_[block].next) {
    list.emplace_back(block);
  }
  return list;
}

}  // namespace baton::kv
