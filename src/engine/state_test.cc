// Models with recurrent state through the whole engine, alone and as a prefill and a decode engine: the same tokens
// whatever the prefix cache, preemption, chunks and the hand-off do, and no slot lost.
#include <gtest/gtest.h>

#include "engine/testing/harness.h"

namespace baton::engine::testing {
namespace {

const FakeModelOptions kHybrid{.state_layers = 3};

EngineRequest request(std::string id, int length, uint64_t seed = 1) {
  auto made = make_request(std::move(id), random_prompt(seed, length));
  made.sampling.max_tokens = 12;
  return made;
}

std::vector<TokenId> alone(EngineRequest made) {
  auto config = Harness::small_config();
  config.prefix_caching = false;
  Harness harness({.config = config, .model = kHybrid});
  return harness.run(std::move(made)).tokens;
}

TEST(EngineState, TheStateDecidesTheTokens) {
  // The fake model is one whose state matters: without it the answer is another.
  Harness without({.config = Harness::small_config()});
  EXPECT_NE(without.run(request("a", 30)).tokens, alone(request("a", 30)));
}

TEST(EngineState, APrefixHitGivesTheTokensOfAMiss) {
  for (const int length : {3, 4, 5, 31, 32, 33}) {
    Harness harness({.config = Harness::small_config(), .model = kHybrid});
    const auto expected = alone(request("a", length));
    EXPECT_EQ(harness.run(request("a", length)).tokens, expected);
    const auto again = harness.run(request("b", length));
    EXPECT_EQ(again.tokens, expected) << length;
    EXPECT_EQ(again.first.cached_tokens, (length - 1) / 4 * 4);
    EXPECT_TRUE(harness.all_free());
  }
}

TEST(EngineState, AConversationIsFoundWhereItsStateWasKept) {
  auto config = Harness::small_config();
  config.state_snapshot_interval = 8;
  Harness harness({.config = config, .model = kHybrid});
  auto turn = request("a", 30);
  const auto first = harness.run(turn);
  auto next = turn;
  next.id = "b";
  next.prompt_ids.insert(next.prompt_ids.end(), first.tokens.begin(), first.tokens.end());
  for (const auto token : random_prompt(5, 10)) next.prompt_ids.push_back(token);
  const auto got = harness.run(next);
  EXPECT_EQ(got.first.cached_tokens, 40) << "30 + 12 tokens, of which the last is not computed";
  EXPECT_EQ(got.tokens, alone(next));
}

TEST(EngineState, AResetForgetsStates) {
  Harness harness({.config = Harness::small_config(), .model = kHybrid});
  harness.run(request("a", 30));
  EXPECT_GT(harness.engine().stats().state_snapshots, 0);
  harness.engine().reset_prefix_cache();
  const auto again = harness.run(request("b", 30));
  EXPECT_EQ(again.first.cached_tokens, 0);
  EXPECT_EQ(again.tokens, alone(request("b", 30)));
}

TEST(EngineState, TooLittleMemoryForTwoSlotsIsSaid) {
  auto config = Harness::small_config();
  config.state_cache_bytes = 100;
  ComputePool pool({.threads = 1, .spin_us = 0});
  const auto made = make_engine(config, make_fake_model(kHybrid), {.pool = &pool});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find("--state-cache-memory-bytes"), std::string::npos) << made.error().message();
}

class EngineStateHandoff : public ::testing::Test {
 protected:
  void start(EngineConfig decode = Harness::small_config(), EngineConfig prefill = Harness::small_config()) {
    link_ = std::make_shared<TwinLink>();
    prefill_ = std::make_unique<Harness>(
        Harness::Options{.config = prefill, .model = kHybrid, .link = link_, .side = TwinSide::kProducer});
    decode_ = std::make_unique<Harness>(
        Harness::Options{.config = decode, .model = kHybrid, .link = link_, .side = TwinSide::kConsumer});
  }
  EngineRequest prefilled(EngineRequest made) {
    auto first = made;
    first.sampling.max_tokens = 1;
    first.kv_transfer.emplace().do_remote_decode = true;
    made.kv_transfer = prefill_->run(std::move(first)).last.kv_transfer;
    return made;
  }
  Gathered through_both(const EngineRequest& made) { return decode_->run(prefilled(made)); }
  void expect_all_free() {
    EXPECT_TRUE(decode_->all_free());
    EXPECT_TRUE(prefill_->all_free());
  }

  std::shared_ptr<TwinLink> link_;
  std::unique_ptr<Harness> prefill_, decode_;
};

TEST_F(EngineStateHandoff, TokensAreThoseOfOneEngine) {
  start();
  for (const int length : {1, 2, 3, 4, 5, 6, 31, 32, 33, 34, 100}) {
    const auto made = request(std::to_string(length), length, static_cast<uint64_t>(length));
    const auto got = through_both(made);
    EXPECT_EQ(got.tokens, alone(made)) << length;
    EXPECT_EQ(got.first.external_tokens, length > 1 ? length : 0) << length;
    EXPECT_EQ(through_both([&] {
                auto again = made;
                again.id += "b";
                return again;
              }())
                  .tokens,
              got.tokens)
        << length;
  }
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
  EXPECT_EQ(decode_->engine().stats().transfer_failures, 0);
  expect_all_free();
}

TEST_F(EngineStateHandoff, ATornHandOffIsRecomputed) {
  for (const int64_t valid : {0, 6, 29, 30}) {
    start();
    link_->valid_tokens = [valid](const transfer::Pull&) { return valid; };
    link_->valid_state = [](const transfer::Pull&) { return false; };
    const auto got = through_both(request("a", 30));
    EXPECT_EQ(got.tokens, alone(request("a", 30))) << valid;
    EXPECT_EQ(got.first.external_tokens, 0);
    EXPECT_EQ(decode_->engine().stats().transfer_failures, 1);
    EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
    expect_all_free();
  }
}

// What of blocks and state did not arrive, and whose policy counts.
TEST_F(EngineStateHandoff, EachGroupHasItsPolicy) {
  struct Case {
    int64_t valid_tokens;
    bool recompute_blocks, recompute_state, fails;
  };
  for (const auto& [valid, blocks, state, fails] :
       {Case{30, false, true, false}, Case{30, true, false, true}, Case{6, true, false, true},
        Case{6, false, true, true}, Case{6, true, true, false}}) {
    auto config = Harness::small_config();
    config.kv_transfer.on_load_failure = {.recompute_blocks = blocks, .recompute_state = state};
    start(config);
    link_->valid_tokens = [valid = valid](const transfer::Pull&) { return valid; };
    link_->valid_state = [](const transfer::Pull&) { return false; };
    const auto got = through_both(request("a", 30));
    EXPECT_EQ(got.last.finish == FinishReason::kError, fails) << valid << blocks << state;
    if (!fails) EXPECT_EQ(got.tokens, alone(request("a", 30)));
    expect_all_free();
  }
}

TEST_F(EngineStateHandoff, AfterATornHandOffTheBestLocalStateIsUsed) {
  start();
  through_both(request("a", 30));
  auto longer = request("b", 30);
  for (const auto token : random_prompt(8, 20)) longer.prompt_ids.push_back(token);
  link_->valid_state = [](const transfer::Pull&) { return false; };
  const auto got = through_both(longer);
  EXPECT_EQ(got.tokens, alone(longer));
  EXPECT_EQ(got.first.external_tokens, 0);
  expect_all_free();
}

TEST_F(EngineStateHandoff, ASecondUseOfThePromptNeedsNothing) {
  start();
  through_both(request("a", 33));
  const auto again = through_both(request("b", 33));
  EXPECT_EQ(again.first.cached_tokens, 32);
  EXPECT_EQ(again.first.external_tokens, 0);
  EXPECT_EQ(link_->counts().declined, 1);
  EXPECT_EQ(again.tokens, alone(request("b", 33)));
  expect_all_free();
}

TEST_F(EngineStateHandoff, AnAbortedFetchGivesItsSlotBack) {
  start();
  link_->manual = true;
  ASSERT_TRUE(decode_->submit(prefilled(request("a", 30))));
  while (decode_->engine().stats().loading == 0) std::this_thread::yield();
  EXPECT_EQ(decode_->engine().stats().state_slots_held, 1);
  decode_->engine().abort("a");
  decode_->wait("a");
  link_->deliver();
  expect_all_free();
}

TEST_F(EngineStateHandoff, FewSlotsAndPreemptionOnBothSides) {
  auto config = Harness::small_config();
  const int64_t slot_bytes = 3 * 128;
  config.state_cache_bytes = 5 * slot_bytes;
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 40);
  config.test_preempt_probability = 0.1;
  config.long_prefill_token_threshold = 9;
  start(config, config);
  std::vector<EngineRequest> first, second;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 40; ++i) {
    auto made = request("r" + std::to_string(i), 5 + i % 7 * 9, static_cast<uint64_t>(i % 11));
    expected.push_back(alone(made));
    second.push_back(made);
    made.sampling.max_tokens = 1;
    made.kv_transfer.emplace().do_remote_decode = true;
    first.push_back(made);
  }
  // P holds what it offers: D's pulls go on while P computes.
  for (size_t i = 0; i < first.size(); ++i) {
    second[i].kv_transfer = prefill_->run(first[i]).last.kv_transfer;
    ASSERT_TRUE(decode_->submit(second[i]));
  }
  for (size_t i = 0; i < second.size(); ++i) EXPECT_EQ(decode_->wait(second[i].id).tokens, expected[i]) << i;
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
  EXPECT_GT(decode_->engine().stats().preemptions + prefill_->engine().stats().preemptions, 0);
  expect_all_free();
}

}  // namespace
}  // namespace baton::engine::testing
