// A pool of states beside a plain reference that remembers every slot's contents: whatever is found is what was kept,
// nothing held or read is given away, and the least recently used snapshot goes first.
#include "kv/state_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>

namespace baton::kv {
namespace {

BlockHash hash_of(int number) {
  BlockHash hash{};
  std::memcpy(hash.data(), &number, sizeof(number));
  return hash;
}

TEST(StatePool, TheLeastRecentlyUsedSnapshotGoesFirst) {
  StatePool pool(3);
  for (int prefix = 0; prefix < 3; ++prefix) pool.keep(*pool.take(), hash_of(prefix));
  const auto first = *pool.find(hash_of(0));
  pool.pin(first);
  pool.unpin(first);
  ASSERT_TRUE(pool.take());
  EXPECT_TRUE(pool.find(hash_of(0)));
  EXPECT_FALSE(pool.find(hash_of(1)));
  EXPECT_TRUE(pool.find(hash_of(2)));
}

TEST(StatePool, APinnedSnapshotIsNotTaken) {
  StatePool pool(1);
  pool.keep(*pool.take(), hash_of(0));
  const auto slot = *pool.find(hash_of(0));
  pool.pin(slot);
  EXPECT_EQ(pool.available(), 0);
  EXPECT_FALSE(pool.take());
  pool.unpin(slot);
  EXPECT_EQ(pool.take(), slot);
}

TEST(StatePool, AForgottenSnapshotIsFreedOnceNobodyReadsIt) {
  StatePool pool(2);
  pool.keep(*pool.take(), hash_of(0));
  const auto slot = *pool.find(hash_of(0));
  pool.pin(slot);
  pool.forget_all();
  EXPECT_FALSE(pool.find(hash_of(0)));
  EXPECT_EQ(pool.available(), 1);
  pool.unpin(slot);
  EXPECT_EQ(pool.available(), 2);
}

TEST(StatePool, ASecondStateOfOnePrefixIsNotKept) {
  StatePool pool(2);
  pool.keep(*pool.take(), hash_of(0));
  const auto first = pool.find(hash_of(0));
  pool.keep(*pool.take(), hash_of(0));
  EXPECT_EQ(pool.find(hash_of(0)), first);
  EXPECT_EQ(pool.snapshots(), 1);
  EXPECT_EQ(pool.held(), 0);
}

TEST(StatePool, NoSlotsAtAll) {
  StatePool pool(0);
  EXPECT_FALSE(pool.take());
  EXPECT_EQ(pool.available(), 0);
}

// Contents are numbers; a snapshot of prefix p has contents p.
class Walk {
 public:
  explicit Walk(uint64_t seed) : random_(seed), contents_(kSlots, -1) {}

  void step() {
    switch (random_() % 7) {
      case 0:
        return take();
      case 1:
        return release();
      case 2:
        return keep();
      case 3:
        return pin();
      case 4:
        return unpin();
      case 5:
        return claim();
      case 6:
        if (random_() % 30 == 0) {
          pool_.forget_all();
          lru_.clear();
        }
    }
  }
  void check() {
    ASSERT_EQ(pool_.held(), static_cast<int>(held_.size()));
    for (int prefix = 0; prefix < kPrefixes; ++prefix) {
      const auto found = pool_.find(hash_of(prefix));
      ASSERT_EQ(found.has_value(), std::ranges::find(lru_, prefix) != lru_.end()) << prefix;
      if (found) ASSERT_EQ(contents_[found->value], prefix);
      if (found) ASSERT_FALSE(held_.contains(found->value));
    }
    for (const auto& [slot, pins] : pins_)
      ASSERT_EQ(contents_[slot], pinned_contents_.at(slot)) << "changed under a reader";
    ASSERT_EQ(pool_.available(), kSlots - static_cast<int>(held_.size() + pins_.size()));
  }

 private:
  static constexpr int kSlots = 6, kPrefixes = 9;

  void take() {
    const int free_before = kSlots - static_cast<int>(held_.size() + pins_.size()) - unread();
    const auto slot = pool_.take();
    ASSERT_EQ(slot.has_value(), free_before > 0 || unread() > 0);
    if (!slot) return;
    ASSERT_FALSE(held_.contains(slot->value) || pins_.contains(slot->value));
    if (free_before == 0) {
      const auto victim = std::ranges::find_if(lru_, [&](int prefix) { return !is_pinned(prefix); });
      ASSERT_EQ(contents_[slot->value], *victim) << "not the least recently used";
      lru_.erase(victim);
    }
    contents_[slot->value] = -1;
    held_.insert(slot->value);
  }
  void release() {
    if (held_.empty()) return;
    pool_.release(StateSlot(take_any_held()));
  }
  void keep() {
    if (held_.empty()) return;
    const int slot = take_any_held();
    const int prefix = static_cast<int>(random_() % kPrefixes);
    contents_[slot] = prefix;
    pool_.keep(StateSlot(slot), hash_of(prefix));
    if (std::ranges::find(lru_, prefix) == lru_.end()) lru_.push_back(prefix);
  }
  void pin() {
    const int prefix = static_cast<int>(random_() % kPrefixes);
    const auto found = pool_.find(hash_of(prefix));
    if (!found) return;
    pool_.pin(*found);
    ++pins_[found->value];
    pinned_contents_[found->value] = prefix;
  }
  void unpin() {
    if (pins_.empty()) return;
    const auto pinned = std::next(pins_.begin(), static_cast<long>(random_() % pins_.size()));
    const int slot = pinned->first;
    pool_.unpin(StateSlot(slot));
    if (--pinned->second > 0) return;
    pins_.erase(pinned);
    const auto place = std::ranges::find(lru_, pinned_contents_.at(slot));
    const bool still_kept = place != lru_.end() && pool_.find(hash_of(*place)) == StateSlot(slot);
    if (still_kept) std::rotate(place, place + 1, lru_.end());
  }
  void claim() {
    const int prefix = static_cast<int>(random_() % kPrefixes);
    const auto found = pool_.find(hash_of(prefix));
    if (!found || pins_.contains(found->value)) return;
    pool_.claim(*found);
    held_.insert(found->value);
    lru_.erase(std::ranges::find(lru_, prefix));
  }

  int take_any_held() {
    const auto slot = std::next(held_.begin(), static_cast<long>(random_() % held_.size()));
    const int taken = *slot;
    held_.erase(slot);
    return taken;
  }
  bool is_pinned(int prefix) {
    const auto found = pool_.find(hash_of(prefix));
    return found && pins_.contains(found->value);
  }
  int unread() {
    return static_cast<int>(std::ranges::count_if(lru_, [&](int prefix) { return !is_pinned(prefix); }));
  }

  std::mt19937_64 random_;
  StatePool pool_{kSlots};
  std::vector<int> contents_;
  std::set<int> held_;
  std::map<int, int> pins_;
  std::map<int, int> pinned_contents_;
  std::vector<int> lru_;  // prefixes that can be found, least recently used first
};

TEST(StatePool, RandomLives) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Walk walk(seed);
    for (int i = 0; i < 1500 && !::testing::Test::HasFatalFailure(); ++i) {
      walk.step();
      walk.check();
    }
  }
}

}  // namespace
}  // namespace baton::kv
