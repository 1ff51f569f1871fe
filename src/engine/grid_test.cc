// An engine of many ranks gives the tokens and logits of one, however requests meet in it; a rank that dies ends the
// engine with its reason; every rank holds its part of a context.
#include <gtest/gtest.h>

#include "engine/rank_metrics.h"
#include "engine/testing/harness.h"

namespace baton::engine::testing {
namespace {

struct Grid {
  int pp = 1, pcp = 1, tp = 1, dcp = 1;
  int block_size = 4;
  bool state = false;
};

RankSetOptions rank_options(const Grid& grid) {
  return {.sizes = {.pp = grid.pp, .pcp = grid.pcp, .tp = grid.tp, .dcp = grid.dcp, .interleave = grid.block_size},
          .stages = {0, grid.pp},
          .layer_partition = {},
          .spin_us = 0,
          .enter = {}};
}

FakeModelOptions model_of(const Grid& grid) {
  return {.layers = 5, .kv_heads = 4, .state_layers = grid.state ? 5 : 0, .state_heads = 8};
}

EngineConfig config_of(const Grid& grid) {
  auto config = Harness::small_config();
  config.block_size = grid.block_size;
  config.kv_cache_bytes = 1 << 20;
  return config;
}

std::vector<EngineRequest> requests() {
  std::vector<EngineRequest> all;
  for (const int length : {1, 3, 4, 9, 16, 17, 40, 70, 90}) {
    const auto i = all.size();
    auto request = make_request("r" + std::to_string(i), random_prompt(i % 3, length));
    request.sampling.max_tokens = 12;
    if (i % 2) {
      request.sampling.temperature = 1;
      request.sampling.seed = i;
    }
    if (i % 4 == 2) request.sampling.prompt_logprobs = 2;
    all.push_back(std::move(request));
  }
  return all;
}

std::vector<Gathered> alone(bool state) {
  auto config = Harness::small_config();
  config.prefix_caching = false;
  Harness harness({.config = config, .model = model_of({.state = state})});
  std::vector<Gathered> all;
  for (auto& request : requests()) all.push_back(harness.run(request));
  return all;
}

void expect_equal(const std::vector<Gathered>& got, const std::vector<Gathered>& expected, const std::string& how) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << how << ", request " << i;
    EXPECT_EQ(got[i].hashes, expected[i].hashes) << how << ", request " << i;
  }
}

class GridEngine : public ::testing::TestWithParam<Grid> {};

TEST_P(GridEngine, GivesTheTokensOfOneRank) {
  const auto grid = GetParam();
  const auto expected = alone(grid.state);
  Harness harness({.config = config_of(grid), .model = model_of(grid), .grid = rank_options(grid)});
  expect_equal(harness.run_all(requests()), expected, "batched");
  expect_equal(harness.run_all(requests()), expected, "after prefix hits");
  EXPECT_TRUE(harness.all_free());
}

TEST_P(GridEngine, GivesThemInChunksAndAfterPreemption) {
  const auto grid = GetParam();
  const auto expected = alone(grid.state);
  auto config = config_of(grid);
  config.max_num_batched_tokens = 24;
  config.test_preempt_probability = 0.2;
  Harness harness({.config = config, .model = model_of(grid), .grid = rank_options(grid)});
  expect_equal(harness.run_all(requests()), expected, "chunked and preempted");
  EXPECT_GT(harness.engine().stats().preemptions, 0);
  EXPECT_TRUE(harness.all_free());
}

TEST_P(GridEngine, GivesThemHandedOver) {
  const auto grid = GetParam();
  const auto expected = alone(grid.state);
  auto link = std::make_shared<TwinLink>();
  const auto side = [&](TwinSide which) {
    return Harness::Options{
        .config = config_of(grid), .model = model_of(grid), .grid = rank_options(grid), .link = link, .side = which};
  };
  Harness prefill(side(TwinSide::kProducer)), decode(side(TwinSide::kConsumer));
  auto all = requests();
  for (size_t i = 0; i < all.size(); ++i) {
    auto first = all[i];
    first.sampling.max_tokens = 1;
    first.kv_transfer = wire::KvTransferParams{};
    first.kv_transfer->do_remote_decode = true;
    all[i].kv_transfer = prefill.run(first).last.kv_transfer;
    const auto got = decode.run(all[i]);
    EXPECT_EQ(got.tokens, expected[i].tokens) << i;
    EXPECT_EQ(got.hashes, expected[i].hashes) << i;
  }
  EXPECT_EQ(decode.engine().stats().last_token_mismatches, 0);
  EXPECT_TRUE(decode.all_free() && prefill.all_free());
}

INSTANTIATE_TEST_SUITE_P(Grids, GridEngine,
                         ::testing::Values(Grid{.tp = 2}, Grid{.pp = 2}, Grid{.pp = 2, .tp = 2},
                                           Grid{.pp = 5, .tp = 8, .state = true}, Grid{.tp = 4, .dcp = 4},
                                           Grid{.pcp = 2, .state = true}, Grid{.pcp = 2, .tp = 4, .dcp = 2},
                                           Grid{.pp = 3, .pcp = 2, .tp = 2, .dcp = 2, .block_size = 3, .state = true}),
                         [](const auto& info) {
                           const auto& g = info.param;
                           return "pp" + std::to_string(g.pp) + "pcp" + std::to_string(g.pcp) + "tp" +
                                  std::to_string(g.tp) + "dcp" + std::to_string(g.dcp) + (g.state ? "state" : "");
                         });

TEST(GridEngineMetrics, EveryRankSaysWhatItHolds) {
  const Grid grid{.pcp = 2, .tp = 2, .dcp = 2};
  Harness harness({.config = config_of(grid), .model = model_of(grid), .grid = rank_options(grid)});
  auto request = make_request("r", random_prompt(1, 22));
  request.sampling.max_tokens = 1;
  (void)harness.run(request);
  const auto text = harness.metrics().text();
  // Of the second place of the sequence only the first two ranks have tokens.
  for (const auto& [rank, blocks] :
       {std::pair{"pp0 pcp0 tp0", 2}, {"pp0 pcp0 tp1", 2}, {"pp0 pcp1 tp0", 1}, {"pp0 pcp1 tp1", 1}}) {
    EXPECT_NE(text.find(fmt::format("baton:rank_kv_blocks_used{{rank=\"{}\"}} {}\n", rank, blocks)), std::string::npos)
        << rank;
  }
  // 22 positions, 4 in a row on each of 4 context ranks: 4 + 2 on the first, ranks 0 to 3 in their order.
  for (const auto& [rank, tokens] :
       {std::pair{"pp0 pcp0 tp0", 8}, {"pp0 pcp0 tp1", 6}, {"pp0 pcp1 tp0", 4}, {"pp0 pcp1 tp1", 4}}) {
    EXPECT_NE(text.find(fmt::format("baton:rank_kv_tokens_total{{rank=\"{}\"}} {}\n", rank, tokens)), std::string::npos)
        << rank << "\n"
        << text;
  }
}

TEST(GridEngineMetrics, PositionsOfAContextRank) {
  EXPECT_EQ(context_tokens(0, 100, 0, 1, 16), 100);
  for (const int size : {2, 4}) {
    for (int64_t first = 0; first < 30; ++first) {
      for (int64_t count = 0; count < 40; ++count) {
        for (int rank = 0; rank < size; ++rank) {
          int64_t held = 0;
          for (int64_t p = first; p < first + count; ++p) held += p / 3 % size == rank;
          ASSERT_EQ(context_tokens(first, count, rank, size, 3), held);
        }
      }
    }
  }
}

class DeadRank : public ::testing::TestWithParam<int> {};

TEST_P(DeadRank, EndsTheEngineWithItsReason) {
  const Grid grid{.pp = 2, .tp = 2};
  auto model = model_of(grid);
  model.throw_at_step = 3;
  model.throw_at_rank = GetParam();
  Harness harness({.config = config_of(grid), .model = model, .grid = rank_options(grid)});
  const auto ended = harness.run(make_request("r", random_prompt(1, 10)));
  EXPECT_EQ(ended.last.finish, FinishReason::kError);
  ASSERT_TRUE(ended.last.error.has_value());
  EXPECT_NE(ended.last.error->message().find("the fake model was told to die"), std::string::npos);
  EXPECT_FALSE(harness.engine().healthy());
  const char* const names[] = {"pp0 pcp0 tp0", "pp0 pcp0 tp1", "pp1 pcp0 tp0", "pp1 pcp0 tp1"};
  EXPECT_NE(harness.engine().health_reason().find(names[GetParam()]), std::string::npos)
      << harness.engine().health_reason();
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeadRank, ::testing::Range(0, 4));

TEST(GridLoad, OneRankThatFailsToLoadSaysWhich) {
  const auto loaded =
      RankSet::load(rank_options({.tp = 3}),
                    [](const models::RankSetup& rank, ComputePool&) -> Result<std::unique_ptr<models::Model>> {
                      if (rank.place.team_rank == 2) return fail(Code::kNotFound, "no such file");
                      return make_fake_model({}, rank);
                    });
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code(), Code::kNotFound);
  EXPECT_EQ(loaded.error().message(), "pp0 pcp0 tp2: no such file");
}

}  // namespace
}  // namespace baton::engine::testing
