// A prefill and a decode engine joined by twins: the same tokens as one engine's, and no block lost whatever fails.
#include <gtest/gtest.h>

#include <thread>

#include "engine/testing/harness.h"

namespace baton::engine::testing {
namespace {

class HandoffTest : public ::testing::Test {
 protected:
  void start(EngineConfig decode_config = Harness::small_config(),
             EngineConfig prefill_config = Harness::small_config()) {
    link_ = std::make_shared<TwinLink>();
    prefill_ = std::make_unique<Harness>(
        Harness::Options{.config = prefill_config, .link = link_, .side = TwinSide::kProducer});
    decode_ = std::make_unique<Harness>(
        Harness::Options{.config = decode_config, .link = link_, .side = TwinSide::kConsumer});
  }

  static EngineRequest request(std::string id, int length = 30) {
    auto made = make_request(std::move(id), random_prompt(static_cast<uint64_t>(length), length));
    made.sampling.max_tokens = 12;
    return made;
  }

  // What the proxy does first: one token, and the KV is kept.
  Gathered prefill(EngineRequest made) {
    made.sampling.max_tokens = 1;
    made.sampling.min_tokens = 1 + static_cast<int>(made.output_ids.size());
    made.kv_transfer = wire::KvTransferParams{};
    made.kv_transfer->do_remote_decode = true;
    return prefill_->run(std::move(made));
  }
  static EngineRequest with_params(EngineRequest made, const Gathered& prefilled) {
    made.kv_transfer = prefilled.last.kv_transfer;
    return made;
  }
  Gathered through_both(const EngineRequest& made) { return decode_->run(with_params(made, prefill(made))); }
  static Gathered on_one_engine(EngineRequest made) {
    Harness harness({.config = Harness::small_config()});
    return harness.run(std::move(made));
  }
  void expect_all_free() {
    EXPECT_TRUE(decode_->all_free());
    EXPECT_TRUE(prefill_->all_free());
    EXPECT_EQ(prefill_->engine().stats().offers_held, 0);
  }

  std::shared_ptr<TwinLink> link_;
  std::unique_ptr<Harness> prefill_, decode_;
};

TEST_F(HandoffTest, TokensAndLogitsAreThoseOfOneEngine) {
  start();
  for (const int length : {1, 2, 4, 5, 31, 32, 33, 100}) {
    for (const bool seeded : {false, true}) {
      auto made = request(std::to_string(length) + (seeded ? "s" : "g"), length);
      if (seeded) {
        made.sampling.temperature = 0.9f;
        made.sampling.top_p = 0.9f;
        made.sampling.repetition_penalty = 1.2f;
        made.sampling.seed = 77;
      }
      made.cache_salt = made.id;
      const auto expected = on_one_engine(made);
      const auto got = through_both(made);
      EXPECT_EQ(got.tokens, expected.tokens) << length;
      EXPECT_EQ(got.hashes, expected.hashes) << length;
      EXPECT_EQ(got.first.external_tokens, length > 1 ? length : 0);
      EXPECT_EQ(got.first.transferred_bytes > 0, length > 1);
    }
  }
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
  EXPECT_EQ(link_->counts().declined, 2) << "a prompt of one token has nothing to fetch";
  expect_all_free();
}

TEST_F(HandoffTest, TheDrawnSeedTravels) {
  start();
  auto made = request("a");
  made.sampling.temperature = 1;
  const auto prefilled = prefill(made);
  ASSERT_TRUE(prefilled.last.kv_transfer.has_value());
  ASSERT_TRUE(prefilled.last.kv_transfer->baton_seed.has_value());
  EXPECT_EQ(prefilled.last.kv_transfer->baton_seed, prefilled.first.seed);
  const auto got = decode_->run(with_params(made, prefilled));
  EXPECT_EQ(got.first.seed, prefilled.first.seed);
  EXPECT_EQ(got.tokens[0], prefilled.tokens[0]);
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
  made.sampling.seed = prefilled.first.seed;
  EXPECT_EQ(got.tokens, on_one_engine(made).tokens);
  made.sampling.seed = 5;
  EXPECT_EQ(prefill(made).last.kv_transfer->baton_seed, std::nullopt) << "the client's own seed is in its request";
}

TEST_F(HandoffTest, BlocksThatCameByHandOffAreCached) {
  start();
  const auto made = request("a", 33);
  through_both(made);
  auto again = made;
  again.id = "b";
  const auto got = through_both(again);
  EXPECT_EQ(got.first.cached_tokens, 32);
  EXPECT_EQ(got.first.external_tokens, 0);
  EXPECT_EQ(link_->counts().declined, 1) << "everything but the last token was here";
  auto longer = request("c", 33);
  longer.prompt_ids = made.prompt_ids;
  for (const auto token : random_prompt(8, 20)) longer.prompt_ids.push_back(token);
  const auto expected = on_one_engine(longer);
  const auto partly = through_both(longer);
  EXPECT_EQ(partly.first.cached_tokens, 32);
  EXPECT_EQ(partly.first.external_tokens, 21);
  EXPECT_EQ(partly.tokens, expected.tokens);
  expect_all_free();
}

TEST_F(HandoffTest, ATornHandOffIsRecomputed) {
  for (const int64_t valid : {0, 1, 4, 6, 29}) {
    start();
    link_->valid_tokens = [valid](const transfer::Pull&) { return valid; };
    const auto made = request("a");
    const auto got = through_both(made);
    EXPECT_EQ(got.tokens, on_one_engine(made).tokens) << valid;
    EXPECT_EQ(got.first.external_tokens, valid);
    EXPECT_EQ(decode_->engine().stats().transfer_failures, 1);
    EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
    expect_all_free();
  }
}

TEST_F(HandoffTest, ATornHandOffFailsWhenThePolicySaysSo) {
  auto config = Harness::small_config();
  config.kv_transfer.on_load_failure.recompute_blocks = false;
  start(config);
  link_->valid_tokens = [](const transfer::Pull&) { return 6; };
  const auto got = through_both(request("a"));
  EXPECT_EQ(got.last.finish, FinishReason::kError);
  ASSERT_TRUE(got.last.error.has_value());
  EXPECT_EQ(got.last.error->code(), Code::kDataLoss);
  expect_all_free();
}

TEST_F(HandoffTest, AWrongFirstTokenIsCounted) {
  start();
  const auto made = request("a");
  auto prefilled = prefill(made);
  *prefilled.last.kv_transfer->last_token_id ^= 1;
  const auto got = decode_->run(with_params(made, prefilled));
  EXPECT_EQ(got.tokens, on_one_engine(made).tokens);
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 1);
}

TEST_F(HandoffTest, AnEndTokenThatThePrefillEngineMaySampleNotIsNoMismatch) {
  // The proxy asks P for min_tokens = 1, which forbids the end token; D may sample it first.
  const auto made = request("a");
  const auto first = on_one_engine(made).tokens[0];
  auto config = Harness::small_config();
  config.eos_token_ids = {first};
  start(config, config);
  const auto prefilled = prefill(made);
  EXPECT_NE(prefilled.tokens[0], first);
  const auto got = decode_->run(with_params(made, prefilled));
  EXPECT_EQ(got.tokens, std::vector<TokenId>{first});
  EXPECT_EQ(got.last.finish, FinishReason::kStop);
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
}

TEST_F(HandoffTest, AnEndTokenAfterAResumeIsNoMismatch) {
  auto made = request("a");
  const auto whole = on_one_engine(made).tokens;
  made.output_ids.assign(whole.begin(), whole.begin() + 5);
  made.sampling.max_tokens = 7;
  made.sampling.ignore_eos = true;
  auto config = Harness::small_config();
  config.eos_token_ids = {whole[5]};
  start(config, config);
  const auto prefilled = prefill(made);
  EXPECT_NE(prefilled.tokens[0], whole[5]);
  const auto got = decode_->run(with_params(made, prefilled));
  EXPECT_EQ(got.tokens, std::vector<TokenId>(whole.begin() + 5, whole.end()));
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
}

TEST_F(HandoffTest, APromptOfAnotherLengthIsNotTaken) {
  start();
  const auto prefilled = prefill(request("a", 30));
  const auto other = request("b", 20);
  const auto got = decode_->run(with_params(other, prefilled));
  EXPECT_EQ(got.tokens, on_one_engine(other).tokens);
  EXPECT_EQ(got.first.external_tokens, 0);
  EXPECT_EQ(link_->counts().declined, 1);
  expect_all_free();
}

TEST_F(HandoffTest, TheOfferOfAnotherPromptOfEqualLengthIsNotTaken) {
  start();
  const auto made = request("a", 40);
  const auto prefilled = prefill(made);
  auto other = with_params(made, prefilled);
  other.prompt_ids = random_prompt(99, 40);
  const auto got = decode_->run(other);
  auto alone = other;
  alone.kv_transfer.reset();
  alone.id = "alone";
  EXPECT_EQ(got.tokens, on_one_engine(alone).tokens);
  EXPECT_EQ(got.first.external_tokens, 0);
  alone.id = "later";
  EXPECT_EQ(decode_->run(alone).tokens, got.tokens) << "nothing of the other prompt is cached";
}

TEST_F(HandoffTest, OnlyARequestThatEndsByLengthIsOffered) {
  start();
  const auto made = request("a");
  auto stopping = made;
  stopping.sampling.stop_token_ids = {on_one_engine(made).tokens[0]};
  stopping.sampling.max_tokens = 1;
  stopping.kv_transfer = wire::KvTransferParams{};
  stopping.kv_transfer->do_remote_decode = true;
  const auto ended = prefill_->run(stopping);
  EXPECT_EQ(ended.last.finish, FinishReason::kStop);
  EXPECT_FALSE(ended.last.kv_transfer.has_value());
  EXPECT_TRUE(prefill_->all_free());
  EXPECT_EQ(link_->counts().offered, 0);
}

TEST_F(HandoffTest, OfferedBlocksAreHeldUntilReleased) {
  start();
  prefill(request("a"));
  EXPECT_EQ(prefill_->engine().stats().kv_blocks_used, 8);
  EXPECT_EQ(prefill_->engine().stats().offers_held, 1);
  link_->expire();
  EXPECT_TRUE(prefill_->all_free());
}

TEST_F(HandoffTest, AnAbortAfterTheEndRevokesTheOffer) {
  start();
  prefill(request("a"));
  prefill_->engine().abort("a");
  EXPECT_TRUE(prefill_->all_free());
  EXPECT_EQ(link_->counts().revoked, 1);
}

TEST_F(HandoffTest, AnIdUsedAgainKeepsBothOffers) {
  start();
  prefill(request("a"));
  prefill(request("a", 40));
  EXPECT_EQ(prefill_->engine().stats().offers_held, 2);
  prefill_->engine().abort("a");
  EXPECT_TRUE(prefill_->all_free());
  EXPECT_EQ(link_->counts().revoked, 2);
}

TEST_F(HandoffTest, AnAbortWhileFetchingHoldsTheBlocksUntilTheConnectorLetsGo) {
  start();
  link_->manual = true;
  const auto made = request("a");
  ASSERT_TRUE(decode_->submit(with_params(made, prefill(made))));
  while (decode_->engine().stats().loading == 0) std::this_thread::yield();
  decode_->engine().abort("a");
  EXPECT_EQ(decode_->wait("a").last.finish, FinishReason::kAbort);
  // Another request runs meanwhile, on other blocks, and the same id may be used again.
  EXPECT_EQ(decode_->run(request("a", 20)).tokens, on_one_engine(request("a", 20)).tokens);
  EXPECT_EQ(decode_->engine().stats().kv_blocks_used, 8);
  link_->deliver();
  EXPECT_EQ(link_->counts().cancelled, 1);
  expect_all_free();
}

TEST_F(HandoffTest, ARefusedOrAbortedRequestIsDeclined) {
  auto config = Harness::small_config();
  config.max_num_seqs = 1;
  start(config);
  auto made = request("a");
  auto bad = with_params(made, prefill(made));
  bad.sampling.top_p = 5;
  EXPECT_FALSE(decode_->engine().submit(bad, [](RequestOutput&&) { FAIL(); }).has_value());
  EXPECT_TRUE(prefill_->all_free());
  EXPECT_EQ(link_->counts().declined, 1);
}

TEST_F(HandoffTest, FetchingDoesNotHoldUpOthers) {
  start();
  link_->manual = true;
  const auto made = request("slow");
  ASSERT_TRUE(decode_->submit(with_params(made, prefill(made))));
  EXPECT_TRUE(decode_->run(request("fast", 10)).finished);
  link_->deliver();
  EXPECT_EQ(decode_->wait("slow").tokens, on_one_engine(made).tokens);
  expect_all_free();
}

TEST_F(HandoffTest, PreemptedOnTheDecodeSideItIsRecomputedThere) {
  auto config = Harness::small_config();
  config.test_preempt_probability = 0.4;
  config.prefix_caching = false;
  start(config);
  for (int i = 0; i < 10; ++i) {
    const auto made = request("r" + std::to_string(i), 20 + i);
    EXPECT_EQ(through_both(made).tokens, on_one_engine(made).tokens) << i;
  }
  EXPECT_GT(decode_->engine().stats().preemptions, 5);
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
  expect_all_free();
}

TEST_F(HandoffTest, AResumedRequestIsHandedOverWithItsOutputs) {
  start();
  auto made = request("a");
  const auto whole = on_one_engine(made).tokens;
  made.output_ids.assign(whole.begin(), whole.begin() + 5);
  made.sampling.max_tokens = 7;
  const auto got = through_both(made);
  EXPECT_EQ(got.tokens, std::vector<TokenId>(whole.begin() + 5, whole.end()));
  EXPECT_EQ(got.first.external_tokens, 35);
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
}

TEST_F(HandoffTest, PromptLogprobsAreComputedHere) {
  start();
  auto made = request("a");
  const auto prefilled = prefill(made);
  made.sampling.prompt_logprobs = 1;
  const auto got = decode_->run(with_params(made, prefilled));
  EXPECT_EQ(got.first.prompt_logprobs.size(), 29u);
  EXPECT_EQ(got.first.external_tokens, 0);
  EXPECT_EQ(link_->counts().declined, 1);
  expect_all_free();
}

TEST_F(HandoffTest, ManyAtOnceOnFewBlocks) {
  auto config = Harness::small_config();
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 34);
  start(config, config);
  std::vector<EngineRequest> requests;
  std::vector<Gathered> expected;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request("r" + std::to_string(i), 15 + 7 * i % 60));
    expected.push_back(on_one_engine(requests.back()));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(decode_->submit(with_params(requests[i], prefill(requests[i]))));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(decode_->wait(requests[i].id).tokens, expected[i].tokens) << i;
  }
  EXPECT_EQ(decode_->engine().stats().last_token_mismatches, 0);
  expect_all_free();
}

TEST_F(HandoffTest, AnEngineWithoutAConnectorComputesByItself) {
  start();
  const auto made = request("a");
  const auto prefilled = prefill(made);
  Harness plain({.config = Harness::small_config()});
  EXPECT_EQ(plain.run(with_params(made, prefilled)).tokens, on_one_engine(made).tokens);
}

}  // namespace
}  // namespace baton::engine::testing
