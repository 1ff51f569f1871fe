// Random lives of sequences against a plain reference that remembers what every block holds: whatever the order of
// hits, growth, evictions, resets and hand-offs, a table's blocks hold its tokens and no block is lost or shared by
// accident.
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <random>

#include "kv/block_manager.h"

namespace baton::kv {
namespace {

constexpr int kBlockSize = 3;
using Key = std::pair<std::string, std::vector<TokenId>>;  // salt, and every token up to the block's end

// The reference: contents written out in full, free blocks in a list, everything searched from the start.
struct Reference {
  std::vector<int> references;
  std::vector<std::vector<TokenId>> contents;  // tokens written, with the whole prefix before them
  std::map<int, Key> names;
  std::vector<std::pair<Key, int>> index;  // in order of publishing
  std::list<int> free;

  explicit Reference(int count) : references(count), contents(count) {
    for (int i = 0; i < count; ++i) free.push_back(i);
  }
  int find(const Key& key) const {
    for (const auto& [name, block] : index) {
      if (name == key) return block;
    }
    return -1;
  }
  void forget(int block) {
    names.erase(block);
    std::erase_if(index, [&](const auto& entry) { return entry.second == block; });
  }
  int take() {
    const int block = free.front();
    free.pop_front();
    forget(block);
    contents[block].clear();
    references[block] = 1;
    return block;
  }
  void retain(int block) {
    if (references[block]++ == 0) free.remove(block);
  }
  void release(int block) {
    if (--references[block] > 0) return;
    if (names.contains(block)) {
      free.push_back(block);
    } else {
      free.push_front(block);
    }
  }
};

struct Life {
  SequenceBlocks blocks;
  std::vector<TokenId> tokens;
  std::vector<int> expected;  // the reference's table
  size_t computed = 0;
  size_t published = 0;
  bool before_reset = false;
};

class Walk {
 public:
  Walk(uint32_t seed, int blocks)
      : random_(seed), manager_({.block_count = blocks, .block_size = kBlockSize}), reference_(blocks) {}

  void step() {
    switch (random(8)) {
      case 0:
      case 1:
        return begin();
      case 2:
      case 3:
      case 4:
        return compute();
      case 5:
        return finish();
      case 6:
        return random(4) == 0 ? detach() : finish_detached();
      default:
        return random(20) == 0 ? reset() : compute();
    }
  }

  void check() {
    std::vector<BlockId> free;
    for (const int block : reference_.free) free.emplace_back(block);
    ASSERT_EQ(manager_.pool().free_list(), free);
    for (int block = 0; block < manager_.block_count(); ++block) {
      ASSERT_EQ(manager_.pool().references(BlockId(block)), reference_.references[block]);
      ASSERT_EQ(manager_.pool().published(BlockId(block)), reference_.names.contains(block));
    }
    for (const auto& life : lives_) check_table(life);
  }

  void end() {
    while (!lives_.empty()) finish();
    while (!detached_.empty()) finish_detached();
    check();
    EXPECT_EQ(manager_.used_blocks(), 0);
  }
  int hits() const { return hits_; }

 private:
  int random(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  static size_t blocks_for(size_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; }
  Key key(const Life& life, size_t block) const {
    return {life.blocks.cache_salt, {life.tokens.begin(), life.tokens.begin() + (block + 1) * kBlockSize}};
  }

  void check_table(const Life& life) {
    ASSERT_EQ(life.blocks.table.size(), life.expected.size());
    for (size_t i = 0; i < life.expected.size(); ++i) {
      ASSERT_EQ(life.blocks.table[i].value, life.expected[i]);
      const size_t held = std::min(life.computed, (i + 1) * kBlockSize);
      if (held <= i * kBlockSize) continue;
      const std::vector<TokenId> prefix(life.tokens.begin(), life.tokens.begin() + static_cast<long>(held));
      ASSERT_EQ(reference_.contents[life.expected[i]], prefix);
    }
  }

  void begin() {
    Life life;
    life.blocks.cache_salt = random(4) == 0 ? "salt" : "";
    const int count = 1 + random(20);
    for (int i = 0; i < count; ++i) life.tokens.push_back(random(8) == 0 ? 1 : 0);
    const auto hit = manager_.find_prefix(life.blocks, life.tokens);
    std::vector<int> expected_hit;
    for (size_t i = 0; (i + 1) * kBlockSize < life.tokens.size(); ++i) {
      const int block = reference_.find(key(life, i));
      if (block < 0) break;
      expected_hit.push_back(block);
    }
    ASSERT_EQ(hit.size(), expected_hit.size());
    for (size_t i = 0; i < hit.size(); ++i) ASSERT_EQ(hit[i].value, expected_hit[i]);
    const size_t capacity = hit.size() * kBlockSize + 1 + static_cast<size_t>(random(6));
    size_t needed = blocks_for(capacity) - hit.size();
    for (const int block : expected_hit) needed += reference_.references[block] == 0;
    const bool fits = needed <= reference_.free.size();
    ASSERT_EQ(manager_.begin(life.blocks, hit, static_cast<int64_t>(capacity)), fits);
    if (!fits) return;
    for (const int block : expected_hit) reference_.retain(block);
    life.expected = expected_hit;
    while (life.expected.size() < blocks_for(capacity)) life.expected.push_back(reference_.take());
    life.published = hit.size();
    life.computed = hit.size() * kBlockSize;
    hits_ += static_cast<int>(hit.size());
    lives_.push_back(std::move(life));
  }

  void compute() {
    if (lives_.empty()) return;
    auto& life = lives_[static_cast<size_t>(random(static_cast<int>(lives_.size())))];
    if (life.computed == life.tokens.size()) life.tokens.push_back(random(8) == 0 ? 1 : 0);
    const size_t target = std::min(life.tokens.size(), life.computed + 1 + static_cast<size_t>(random(5)));
    const size_t wanted = blocks_for(target);
    const size_t missing = wanted > life.expected.size() ? wanted - life.expected.size() : 0;
    const bool fits = missing <= reference_.free.size();
    ASSERT_EQ(manager_.grow(life.blocks, static_cast<int64_t>(target)), fits);
    if (!fits) return;
    while (life.expected.size() < wanted) life.expected.push_back(reference_.take());
    for (; life.computed < target; ++life.computed) {
      auto& contents = reference_.contents[life.expected[life.computed / kBlockSize]];
      contents.assign(life.tokens.begin(), life.tokens.begin() + static_cast<long>(life.computed) + 1);
    }
    manager_.publish(life.blocks, life.tokens, static_cast<int64_t>(life.computed));
    if (life.before_reset) return;
    for (; life.published < life.computed / kBlockSize; ++life.published) {
      reference_.names[life.expected[life.published]] = key(life, life.published);
      reference_.index.emplace_back(key(life, life.published), life.expected[life.published]);
    }
  }

  void finish() {
    if (lives_.empty()) return;
    const auto which = static_cast<size_t>(random(static_cast<int>(lives_.size())));
    manager_.release(lives_[which].blocks);
    release(lives_[which].expected);
    lives_.erase(lives_.begin() + static_cast<long>(which));
  }
  void detach() {
    if (lives_.empty()) return;
    auto held = manager_.detach(lives_.back().blocks);
    detached_.emplace_back(std::move(held), lives_.back().expected);
    lives_.pop_back();
  }
  void finish_detached() {
    if (detached_.empty()) return;
    manager_.release_blocks(detached_.front().first);
    release(detached_.front().second);
    detached_.erase(detached_.begin());
  }
  void release(const std::vector<int>& table) {
    for (auto block = table.rbegin(); block != table.rend(); ++block) reference_.release(*block);
  }
  void reset() {
    manager_.reset_prefix_cache();
    reference_.names.clear();
    reference_.index.clear();
    for (auto& life : lives_) life.before_reset = true;
  }

  std::mt19937 random_;
  BlockManager manager_;
  Reference reference_;
  std::vector<Life> lives_;
  std::vector<std::pair<std::vector<BlockId>, std::vector<int>>> detached_;
  int hits_ = 0;
};

TEST(BlockManagerModel, RandomLivesKeepEveryBlockWhereTheReferenceHasIt) {
  int hits = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    Walk walk(seed, 4 + static_cast<int>(seed % 23));
    for (int i = 0; i < 600; ++i) {
      walk.step();
      walk.check();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " step " << i;
    }
    walk.end();
    hits += walk.hits();
  }
  EXPECT_GT(hits, 1000) << "the walk must meet prefix hits to say anything";
}

}  // namespace
}  // namespace baton::kv
