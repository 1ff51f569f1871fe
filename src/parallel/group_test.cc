#include "parallel/group.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace baton::parallel {
namespace {

TEST(Group, EveryRankReadsWhatAllWroteRoundAfterRound) {
  constexpr int kRanks = 6, kRounds = 500;
  Team team(kRanks);
  std::atomic<int> wrong{0};
  std::vector<std::jthread> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      Group group(team, r);
      auto first = *group.share(kRanks * sizeof(int64_t)), second = *group.share(kRanks * sizeof(int64_t));
      for (int64_t round = 0; round < kRounds; ++round) {
        auto* values = (round % 2 == 0 ? first : second)->as<int64_t>();
        values[r] = round * kRanks + r;
        group.barrier();
        for (int i = 0; i < kRanks; ++i) wrong += values[i] != round * kRanks + i;
      }
    });
  }
  ranks.clear();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Group, ABrokenTeamFreesThoseWhoWaitAndThoseWhoCome) {
  Team team(3);
  std::vector<std::string> reasons(2);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      Group group(team, r);
      try {
        group.barrier();
      } catch (const GroupBroken& broken) {
        reasons[r] = broken.what();
      }
    });
  }
  team.break_up("rank 2 has died");
  team.break_up("and this comes too late");
  ranks.clear();
  EXPECT_EQ(reasons[0], "rank 2 has died");
  EXPECT_EQ(reasons[1], "rank 2 has died");
  EXPECT_THROW(Group(team, 2).barrier(), GroupBroken);
}

TEST(Group, OneRankNeverWaits) {
  Group alone;
  EXPECT_EQ(alone.size(), 1);
  alone.barrier();
  auto memory = alone.share(64);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ((*memory)->size(), 64u);
}

}  // namespace
}  // namespace baton::parallel
