// Thousands of random requests, aborted, preempted, cached and starved at random: each answer is the one it has alone,
// each request ends exactly once, and at the end every block is free.
#include <gtest/gtest.h>

#include <random>

#include "engine/testing/harness.h"

namespace baton::engine::testing {
namespace {

// A small universe of prompts, so that answers can be known beforehand and prefixes meet.
EngineRequest random_request(uint64_t kind) {
  std::mt19937_64 random(kind);
  auto prompt = random_prompt(kind % 7, 1 + static_cast<int>(random() % 40));
  for (const auto token : random_prompt(kind, static_cast<int>(random() % 20))) prompt.push_back(token);
  auto request = make_request("", prompt);
  auto& params = request.sampling;
  params.max_tokens = 1 + static_cast<int>(random() % 12);
  if (random() % 2) {
    params.temperature = 1;
    params.seed = random();
  }
  if (random() % 4 == 0) params.top_k = 5;
  if (random() % 4 == 0) params.top_p = 0.7f;
  if (random() % 4 == 0) params.frequency_penalty = 1;
  if (random() % 6 == 0) params.prompt_logprobs = 0;
  if (random() % 5 == 0) request.cache_salt = "salt";
  return request;
}

void run_random(const EngineConfig& config, int count, uint64_t seed, const FakeModelOptions& model = {},
                const std::optional<RankSetOptions>& grid = std::nullopt) {
  constexpr uint64_t kKinds = 120;
  std::vector<std::vector<TokenId>> expected;
  {
    auto plain = Harness::small_config();
    plain.prefix_caching = false;
    Harness alone({.config = plain, .model = model});
    for (uint64_t kind = 0; kind < kKinds; ++kind) {
      auto request = random_request(kind);
      request.id = "k" + std::to_string(kind);
      expected.push_back(alone.run(request).tokens);
    }
  }
  Harness harness({.config = config, .model = model, .grid = grid, .threads = 1});
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::string, uint64_t>> live;
  int aborted = 0;
  const auto settle = [&](size_t which) {
    const auto [id, kind] = live[which];
    live.erase(live.begin() + static_cast<long>(which));
    const auto ended = harness.wait(id);
    if (ended.last.finish == FinishReason::kAbort) {
      ++aborted;
      ASSERT_LE(ended.tokens.size(), expected[kind].size());
      ASSERT_TRUE(std::equal(ended.tokens.begin(), ended.tokens.end(), expected[kind].begin())) << kind;
    } else {
      ASSERT_EQ(ended.last.finish, FinishReason::kLength);
      ASSERT_EQ(ended.tokens, expected[kind]) << kind;
    }
  };
  for (int i = 0; i < count; ++i) {
    const uint64_t kind = random() % kKinds;
    auto request = random_request(kind);
    request.id = "r" + std::to_string(i);
    ASSERT_TRUE(harness.submit(request)) << i;
    live.emplace_back(request.id, kind);
    if (random() % 10 == 0) harness.engine().abort(live[random() % live.size()].first);
    if (random() % 200 == 0) harness.engine().reset_prefix_cache();
    while (live.size() > 40) settle(random() % live.size());
    if (::testing::Test::HasFatalFailure()) return;
  }
  while (!live.empty()) settle(0);
  EXPECT_GT(aborted, count / 200);
  EXPECT_TRUE(harness.all_free());
}

TEST(EngineRandom, OrdinaryConfiguration) { run_random(Harness::small_config(), 2000, 1); }

TEST(EngineRandom, FewBlocksAndForcedPreemption) {
  auto config = Harness::small_config();
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 36);
  config.test_preempt_probability = 0.1;
  config.max_num_batched_tokens = 24;
  run_random(config, 1500, 2);
}

TEST(EngineRandom, OneTokenBlocksAndSmallChunks) {
  auto config = Harness::small_config();
  config.block_size = 1;
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 200);
  config.long_prefill_token_threshold = 7;
  run_random(config, 1000, 3);
}

TEST(EngineRandom, RecurrentState) { run_random(Harness::small_config(), 1500, 4, {.state_layers = 2}); }

TEST(EngineRandom, RecurrentStateWithFewSlotsAndForcedPreemption) {
  auto config = Harness::small_config();
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 50);
  config.state_cache_bytes = int64_t{2} * 128 * 6;  // six slots of two layers
  config.state_snapshot_interval = 8;
  config.test_preempt_probability = 0.1;
  config.max_num_batched_tokens = 24;
  run_random(config, 1500, 5, {.state_layers = 2});
}

// Several steps are under way at a time.
TEST(EngineRandom, StagesWithFewBlocksAndForcedPreemption) {
  const FakeModelOptions model{.layers = 3, .kv_heads = 2};
  auto config = Harness::small_config();
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, model, 40);
  config.test_preempt_probability = 0.1;
  config.max_num_batched_tokens = 24;
  run_random(config, 800, 6, model,
             RankSetOptions{.sizes = {.pp = 3}, .stages = {0, 3}, .layer_partition = {}, .spin_us = 0, .enter = {}});
}

TEST(EngineRandom, StagesWithRecurrentState) {
  const FakeModelOptions model{.layers = 2, .state_layers = 2};
  run_random(
      Harness::small_config(), 600, 7, model,
      RankSetOptions{.sizes = {.pp = 2, .tp = 2}, .stages = {0, 2}, .layer_partition = {}, .spin_us = 0, .enter = {}});
}

}  // namespace
}  // namespace baton::engine::testing
