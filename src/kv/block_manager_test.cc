// What prefix sharing must never do: hand out contents that changed, leave nothing to compute, or leak a block.
#include "kv/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace baton::kv {
namespace {

using testing::ElementsAre;

std::vector<TokenId> count_up(int count, int from = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

SequenceBlocks run_and_free(BlockManager& manager, const std::vector<TokenId>& tokens, std::string salt = "") {
  SequenceBlocks sequence{.cache_salt = std::move(salt)};
  const auto hit = manager.find_prefix(sequence, tokens);
  EXPECT_TRUE(manager.begin(sequence, hit, static_cast<int64_t>(tokens.size())));
  manager.publish(sequence, tokens, static_cast<int64_t>(tokens.size()));
  auto copy = sequence;
  manager.release(sequence);
  return copy;
}

size_t hit_blocks(BlockManager& manager, const std::vector<TokenId>& tokens, std::string salt = "") {
  SequenceBlocks sequence{.cache_salt = std::move(salt)};
  return manager.find_prefix(sequence, tokens).size();
}

TEST(BlockManager, AHitLeavesATokenToCompute) {
  BlockManager manager({.block_count = 10, .block_size = 4});
  run_and_free(manager, count_up(12));
  EXPECT_EQ(hit_blocks(manager, count_up(11)), 2u);
  EXPECT_EQ(hit_blocks(manager, count_up(12)), 2u);
  EXPECT_EQ(hit_blocks(manager, count_up(13)), 3u);
  EXPECT_EQ(hit_blocks(manager, count_up(4)), 0u);
  EXPECT_EQ(hit_blocks(manager, count_up(1)), 0u);
  EXPECT_EQ(hit_blocks(manager, {}), 0u);
}

TEST(BlockManager, OnlyFullBlocksOfTheSamePrefixAreShared) {
  BlockManager manager({.block_count = 10, .block_size = 4});
  run_and_free(manager, count_up(7));
  EXPECT_EQ(hit_blocks(manager, count_up(9)), 1u);
  auto other = count_up(9);
  other[0] = 99;
  EXPECT_EQ(hit_blocks(manager, other), 0u);
  // The same four tokens at another place are another block.
  EXPECT_EQ(hit_blocks(manager, count_up(9, 4)), 0u);
}

TEST(BlockManager, SaltsAndSeedsSeparate) {
  BlockManager manager({.block_count = 20, .block_size = 4});
  const auto tokens = count_up(9);
  run_and_free(manager, tokens, "a");
  EXPECT_EQ(hit_blocks(manager, tokens, "a"), 2u);
  EXPECT_EQ(hit_blocks(manager, tokens, "b"), 0u);
  EXPECT_EQ(hit_blocks(manager, tokens), 0u);
}

TEST(BlockManager, TailsAreEvictedBeforeHeadsAndUnnamedBlocksBeforeAll) {
  BlockManager manager({.block_count = 4, .block_size = 4});
  const auto freed = run_and_free(manager, count_up(14));  // three full blocks and a partial one
  const auto& table = freed.table;
  EXPECT_THAT(manager.pool().free_list(), ElementsAre(table[3], table[2], table[1], table[0]));
  SequenceBlocks two;
  ASSERT_TRUE(manager.begin(two, {}, 8));
  EXPECT_EQ(hit_blocks(manager, count_up(14)), 2u);
}

TEST(BlockManager, TheLeastRecentlyUsedPrefixGoesFirst) {
  BlockManager manager({.block_count = 4, .block_size = 4});
  run_and_free(manager, count_up(8));
  run_and_free(manager, count_up(8, 100));
  run_and_free(manager, count_up(9));  // touches the first again, and takes one block of the second for its ninth token
  EXPECT_EQ(hit_blocks(manager, count_up(9)), 2u);
  EXPECT_EQ(hit_blocks(manager, count_up(9, 100)), 1u);
}

TEST(BlockManager, AHitThatWouldStarveItselfIsRefusedWhole) {
  BlockManager manager({.block_count = 3, .block_size = 4});
  run_and_free(manager, count_up(9));
  SequenceBlocks sequence;
  const auto tokens = count_up(16);
  const auto hit = manager.find_prefix(sequence, tokens);
  ASSERT_EQ(hit.size(), 2u);
  EXPECT_FALSE(manager.begin(sequence, hit, 16));  // two revived and two new, of three
  EXPECT_EQ(manager.free_blocks(), 3);
  EXPECT_TRUE(manager.begin(sequence, hit, 12));
  EXPECT_EQ(manager.free_blocks(), 0);
  EXPECT_FALSE(manager.grow(sequence, 13));
  EXPECT_EQ(sequence.table.size(), 3u);
}

TEST(BlockManager, ReuseIsAnnouncedBeforeTheBlockChangesHands) {
  std::vector<BlockId> reused;
  BlockManager manager({.block_count = 2, .block_size = 4}, [&](BlockId block) { reused.push_back(block); });
  run_and_free(manager, count_up(8));
  EXPECT_THAT(reused, ElementsAre(BlockId(0), BlockId(1)));
  reused.clear();
  SequenceBlocks sequence;
  const auto hit = manager.find_prefix(sequence, count_up(8));
  ASSERT_TRUE(manager.begin(sequence, hit, 4));
  EXPECT_TRUE(reused.empty()) << "a hit keeps its contents";
  ASSERT_TRUE(manager.grow(sequence, 8));
  EXPECT_THAT(reused, ElementsAre(BlockId(1)));
}

TEST(BlockManager, AfterAResetNothingOldIsFoundNotEvenWhatWasRunning) {
  BlockManager manager({.block_count = 10, .block_size = 4});
  const auto tokens = count_up(9);
  run_and_free(manager, tokens);
  SequenceBlocks running;
  ASSERT_TRUE(manager.begin(running, {}, 9));
  manager.reset_prefix_cache();
  manager.publish(running, tokens, 9);
  EXPECT_EQ(hit_blocks(manager, tokens), 0u);
  manager.release(running);
  EXPECT_EQ(manager.used_blocks(), 0);
  run_and_free(manager, tokens);
  EXPECT_EQ(hit_blocks(manager, tokens), 2u);
}

TEST(BlockManager, DetachedBlocksStayHeldUntilTheyAreReleased) {
  BlockManager manager({.block_count = 4, .block_size = 4});
  SequenceBlocks sequence;
  ASSERT_TRUE(manager.begin(sequence, {}, 8));
  const auto held = manager.detach(sequence);
  manager.release(sequence);
  EXPECT_EQ(manager.used_blocks(), 2);
  manager.release_blocks(held);
  EXPECT_EQ(manager.used_blocks(), 0);
}

TEST(BlockManager, WithCachingOffNothingIsShared) {
  BlockManager manager({.block_count = 4, .block_size = 4, .prefix_caching = false});
  run_and_free(manager, count_up(8));
  EXPECT_EQ(hit_blocks(manager, count_up(9)), 0u);
}

}  // namespace
}  // namespace baton::kv
