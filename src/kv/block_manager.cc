#include "kv/block_manager.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton::kv {

BlockManager::BlockManager(Options options, BlockPool::OnReuse on_reuse)
    : options_(std::move(options)),
      root_(root_hash(options_.hash_seed)),
      pool_(options_.block_count, std::move(on_reuse)) {
  BATON_CHECK(options_.block_size > 0, "block_size={}", options_.block_size);
}

void BlockManager::extend_hashes(SequenceBlocks& sequence, std::span<const TokenId> tokens, int64_t block_count) const {
  const auto size = static_cast<size_t>(options_.block_size);
  for (auto i = sequence.hashes.size(); i < static_cast<size_t>(block_count); ++i) {
    const auto salted = i == 0 && !sequence.cache_salt.empty();
    const auto extra = salted ? std::span<const std::string>(&sequence.cache_salt, 1) : std::span<const std::string>();
    const auto& parent = i == 0 ? root_ : sequence.hashes[i - 1];
    sequence.hashes.push_back(hash_block(parent, tokens.subspan(i * size, size), extra));
  }
}

std::vector<BlockId> BlockManager::find_prefix(SequenceBlocks& sequence, std::span<const TokenId> tokens) const {
  std::vector<BlockId> hit;
  if (!options_.prefix_caching || tokens.empty()) return hit;
  const int64_t usable = (static_cast<int64_t>(tokens.size()) - 1) / options_.block_size;
  for (int64_t i = 0; i < usable; ++i) {
    extend_hashes(sequence, tokens, i + 1);
    const auto block = pool_.find(sequence.hashes[static_cast<size_t>(i)]);
    if (!block) break;
    hit.push_back(*block);
  }
  return hit;
}

bool BlockManager::begin(SequenceBlocks& sequence, std::span<const BlockId> hit, int64_t token_capacity) {
  BATON_CHECK(sequence.table.empty(), "a table of {} blocks begun again", sequence.table.size());
  const int64_t fresh = std::max<int64_t>(blocks_for(token_capacity) - static_cast<int64_t>(hit.size()), 0);
  const auto revived = std::ranges::count_if(hit, [&](BlockId block) { return pool_.references(block) == 0; });
  if (fresh + revived > pool_.free_count()) return false;
  for (const auto block : hit) pool_.retain(block);
  sequence.table.assign(hit.begin(), hit.end());
  sequence.published = static_cast<int64_t>(hit.size());
  sequence.epoch = epoch_;
  return grow(sequence, token_capacity);
}

bool BlockManager::grow(SequenceBlocks& sequence, int64_t token_capacity) {
  const int64_t missing = blocks_for(token_capacity) - static_cast<int64_t>(sequence.table.size());
  if (missing <= 0) return true;
  if (missing > pool_.free_count()) return false;
  const auto taken = pool_.take(static_cast<int>(missing));
  sequence.table.insert(sequence.table.end(), taken->begin(), taken->end());
  return true;
}

void BlockManager::publish(SequenceBlocks& sequence, std::span<const TokenId> tokens, int64_t computed) {
  if (!shares(sequence)) return;
  const int64_t full = std::min(computed / options_.block_size, static_cast<int64_t>(sequence.table.size()));
  if (full <= sequence.published) return;
  extend_hashes(sequence, tokens, full);
  for (auto i = static_cast<size_t>(sequence.published); i < static_cast<size_t>(full); ++i) {
    pool_.publish(sequence.table[i], sequence.hashes[i]);
  }
  sequence.published = full;
}

const BlockHash& BlockManager::prefix_hash(SequenceBlocks& sequence, std::span<const TokenId> tokens,
                                           int64_t block_count) const {
  extend_hashes(sequence, tokens, block_count);
  return sequence.hashes[static_cast<size_t>(block_count - 1)];
}

void BlockManager::release(SequenceBlocks& sequence) { release_blocks(detach(sequence)); }

std::vector<BlockId> BlockManager::detach(SequenceBlocks& sequence) {
  sequence.published = 0;
  return std::exchange(sequence.table, {});
}

void BlockManager::release_blocks(std::span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i > 0; --i) pool_.release(blocks[i - 1]);
}

void BlockManager::hold_blocks(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) pool_.retain(block);
}

void BlockManager::reset_prefix_cache() {
  pool_.unpublish_all();
  ++epoch_;
}

}  // namespace baton::kv
