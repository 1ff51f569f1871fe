#include "parallel/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace baton::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Share, PartsTileTheWholeInUnits) {
  for (const int64_t total : {1, 16, 17, 96, 100, 7168}) {
    for (const int parts : {1, 2, 3, 16}) {
      for (const int64_t unit : {1, 16}) {
        int64_t at = 0;
        for (int i = 0; i < parts; ++i) {
          const Share share = share_of(total, parts, i, unit);
          EXPECT_EQ(share.begin, at);
          EXPECT_TRUE(share.begin % unit == 0 || share.begin == total);
          at = share.end;
        }
        EXPECT_EQ(at, total);
      }
    }
  }
  EXPECT_THAT(share_borders(10, 4), ElementsAre(0, 2, 5, 7, 10));
}

// vLLM 0.11, tests/distributed/test_pipeline_partition.py: the even split and what is left over.
TEST(StageLayers, AreCutAsVllmCutsThem) {
  const auto counts = [](int layers, int pp) {
    std::vector<int64_t> counts;
    for (const Share& share : *stage_layers(layers, pp)) counts.push_back(share.count());
    return counts;
  };
  EXPECT_THAT(counts(8, 2), ElementsAre(4, 4));
  EXPECT_THAT(counts(5, 3), ElementsAre(2, 2, 1));
  EXPECT_THAT(counts(8, 3), ElementsAre(3, 3, 2));
  EXPECT_THAT(counts(93, 4), ElementsAre(23, 23, 24, 23));
}

TEST(StageLayers, AGivenPartitionMustAddUp) {
  const auto given = stage_layers(93, 4, {25, 25, 24, 19});
  ASSERT_TRUE(given.has_value());
  EXPECT_EQ(given->back(), (Share{74, 93}));
  EXPECT_THAT(stage_layers(93, 4, {25, 25, 24, 18}).error().message(), HasSubstr("25,25,24,18"));
  EXPECT_FALSE(stage_layers(93, 4, {93}).has_value());
  EXPECT_FALSE(stage_layers(2, 2, {2, 0}).has_value());
}

TEST(RankPlace, ContextGroupsPartTheTeamAndTheLanes) {
  const GridSizes sizes{.pcp = 2, .tp = 4, .dcp = 2};
  std::set<std::pair<int, int>> seen;
  for (int m = 0; m < sizes.team_size(); ++m) {
    const RankPlace place{.sizes = sizes, .team_rank = m};
    EXPECT_TRUE(seen.insert({place.context_group(), place.context_rank()}).second);
    EXPECT_EQ(place.context_peer(place.context_rank()), m);
    for (int c = 0; c < sizes.context_size(); ++c) {
      const RankPlace peer{.sizes = sizes, .team_rank = place.context_peer(c)};
      EXPECT_EQ(peer.context_group(), place.context_group());
      EXPECT_EQ(peer.context_rank(), c);
    }
  }
}

TEST(RankPlace, ExpertsAreSpreadOverReplicasOnlyWhenAskedTo) {
  RankPlace place{.sizes = {.dp = 4, .tp = 2}, .dp_rank = 3, .team_rank = 1};
  EXPECT_EQ(place.experts(16), (Share{8, 16}));
  place.sizes.expert_parallel = true;
  EXPECT_EQ(place.experts(16), (Share{14, 16}));
}

TEST(CheckGrid, NamesTheRuleThatExcludesAGrid) {
  const GridLimits limits{.layers = 93, .heads = 16, .experts = 32};
  EXPECT_TRUE(check_grid({.pp = 4, .pcp = 4, .tp = 4}, limits).has_value());
  EXPECT_TRUE(check_grid({.tp = 16, .dcp = 16}, limits).has_value());
  EXPECT_TRUE(check_grid({.pcp = 8, .interleave = 1536}, limits).has_value());
  EXPECT_THAT(check_grid({.tp = 4, .dcp = 3}, limits).error().message(), HasSubstr("divide"));
  EXPECT_THAT(check_grid({.tp = 2, .dcp = 2, .interleave = 16}, limits).error().message(),
              HasSubstr("multiple of 768"));
  EXPECT_THAT(check_grid({.tp = 16, .dcp = 16, .interleave = 1536}, limits).error().message(), HasSubstr("12288"));
  EXPECT_THAT(check_grid({.pcp = 3, .tp = 3, .dcp = 1}, limits).error().message(), HasSubstr("part a lane"));
  EXPECT_THAT(check_grid({.pcp = 2, .tp = 16}, limits).error().message(), HasSubstr("16 attention heads"));
  EXPECT_THAT(check_grid({.pp = 94}, limits).error().message(), HasSubstr("93 layers"));
  EXPECT_THAT(check_grid({.tp = 17}, limits).error().message(), HasSubstr("at most 16"));
}

}  // namespace
}  // namespace baton::parallel
