// Layerwise pushes: what a grant takes, and both ends over real sockets.
#include "transfer/layerwise_connector.h"
#include "transfer/layerwise_grant.h"
#include "transfer/pull_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr int64_t kTokens = 100;  // 7 blocks, the last with 4 tokens
constexpr uint64_t kGrant = 9;

Pull pull_of(int64_t tokens, int64_t skip = 0, std::optional<int32_t> state = {}) {
  Pull pull{.request_id = "r-0-1", .token_count = tokens, .skip_tokens = skip, .prompt = {1, 2}, .state_slot = state};
  pull.params.baton_offer_id = kGrant;
  for (int64_t i = 0; i * kBlockSize < tokens; ++i) pull.blocks.push_back(BlockId(static_cast<int32_t>(40 - i)));
  return pull;
}

wire::PushData data_of(uint32_t entry, uint32_t first, uint32_t count) {
  return {.grant_id = kGrant,
          .entry = entry,
          .first_block = first,
          .block_count = count,
          .checksums = std::vector<uint64_t>(size_t{count} * kHeads)};
}
int64_t bytes_of(uint32_t first, uint32_t count) {
  int64_t tokens = 0;
  for (uint32_t b = first; b < first + count; ++b) tokens += std::min<int64_t>(kBlockSize, kTokens - b * kBlockSize);
  return tokens * 2 * kHeads * 64 * 2;
}

TEST(Grant, CountsTheLongestPrefixWhateverTheOrder) {
  Grant grant(pull_of(kTokens, 2 * kBlockSize), kLayout);
  EXPECT_EQ(grant.valid_tokens(), 2 * kBlockSize);
  for (uint32_t entry = kLayers; entry-- > 0;) {
    for (const auto& [first, count] : {std::pair(4u, 3u), std::pair(2u, 2u)}) {
      const auto data = data_of(entry, first, count);
      const auto moves = grant.place(data, bytes_of(first, count));
      ASSERT_TRUE(moves) << moves.error().to_string();
      EXPECT_EQ(moves->units.size(), data.checksums.size());
      EXPECT_FALSE(grant.complete());
      grant.stored(data, bytes_of(first, count));
      grant.stored(data, bytes_of(first, count));  // again, as after a second P took over
      if (entry == 0 && first == 4) EXPECT_EQ(grant.valid_tokens(), 2 * kBlockSize);
    }
  }
  EXPECT_TRUE(grant.complete());
  EXPECT_EQ(grant.valid_tokens(), kTokens);
}

TEST(Grant, WhatDoesNotFitHasNoPlace) {
  const Grant grant(pull_of(kTokens, 2 * kBlockSize), kLayout);
  EXPECT_TRUE(grant.place(data_of(0, 2, 5), bytes_of(2, 5)));
  EXPECT_FALSE(grant.place(data_of(0, 1, 1), bytes_of(1, 1))) << "D has it: it may be shared with others";
  EXPECT_FALSE(grant.place(data_of(0, 6, 2), bytes_of(2, 2)));
  EXPECT_FALSE(grant.place(data_of(0, 0xFFFFFFFF, 2), bytes_of(2, 2)));
  EXPECT_FALSE(grant.place(data_of(kLayers, 2, 1), bytes_of(2, 1)));
  EXPECT_FALSE(grant.place(data_of(0, 2, 1), bytes_of(2, 1) - 1));
  auto few = data_of(0, 2, 1);
  few.checksums.pop_back();
  EXPECT_FALSE(grant.place(few, bytes_of(2, 1)));
  auto state = data_of(0, 0, 1);
  state.state = true;
  EXPECT_FALSE(grant.place(state, 0)) << "none is wanted";
}

TEST(Grant, IsForOnePromptAlone) {
  const Grant grant(pull_of(kTokens, 0, 1), kLayout);
  EXPECT_TRUE(grant.check({kGrant, kTokens, {1, 2}, true}));
  EXPECT_FALSE(grant.check({kGrant, kTokens, {1, 3}, true}));
  EXPECT_FALSE(grant.check({kGrant, kTokens + 1, {1, 2}, true}));
  EXPECT_FALSE(grant.check({kGrant, kTokens, {1, 2}, false}));
}

// Both ends; the test is the metaserver and P's engine.
struct Ends : ::testing::Test {
  transport::SharedArena prefill = *make_arena(), decode = *make_arena();
  std::mutex mutex;
  std::vector<std::pair<nlohmann::json, std::function<void(Result<void>)>>> calls;
  std::unique_ptr<KvConsumer> consumer;
  std::unique_ptr<KvProducer> producer;

  void make(PullConnectorOptions p = options("p"), PullConnectorOptions d = options("d")) {
    fill(prefill.data(), 1);
    const auto call = [this](std::string, nlohmann::json body, std::function<void(Result<void>)> done) {
      std::lock_guard lock(mutex);
      calls.emplace_back(std::move(body), std::move(done));
    };
    consumer = *make_layerwise_consumer(std::move(d), decode.data(), call, {.tail = milliseconds(300)});
    producer = *make_layerwise_producer(std::move(p), prefill.data(), {.tail = milliseconds(2000)});
  }
  // D's blocks are 40 - i, P's 3 + i.
  wire::KvTransferParams start(int64_t skip = 0, std::optional<int32_t> state = {}) {
    auto pull = pull_of(kTokens, skip, state);
    pull.params.metaserver = "http://proxy/v1/metaserver?key=k";
    consumer->start(std::move(pull));
    const auto body = wait_for([&] {
      std::lock_guard lock(mutex);
      std::vector<nlohmann::json> bodies;
      if (!calls.empty()) bodies.push_back(calls.back().first);
      return bodies;
    });
    EXPECT_EQ(body.size(), 1u);
    return *wire::KvTransferParams::from_json(body.at(0));
  }
  void answer(Result<void> with) {
    std::lock_guard lock(mutex);
    calls.back().second(std::move(with));
  }
  // Steps of two blocks and a bit, layer by layer.
  void compute(const wire::KvTransferParams& params, bool with_state = false) {
    int64_t done = 0;
    for (int64_t tokens = 40; done < 7; tokens += 40) {
      const int64_t end = tokens >= kTokens ? 7 : tokens / kBlockSize;
      PushStep step{.request_id = "p-0-1",
                    .params = params,
                    .token_count = kTokens,
                    .prompt = {1, 2},
                    .has_state = with_state,
                    .first_block = done,
                    .ticket = "t" + std::to_string(done)};
      for (; done < end; ++done) step.blocks.push_back(BlockId(static_cast<int32_t>(3 + done)));
      producer->plan_push(std::move(step));
      for (int layer = 1; layer <= kLayers; ++layer) producer->entries_ready(layer);
      producer->entries_ready(kLayers);
    }
    Offer offer{.request_id = "p-0-1", .blocks = {}, .token_count = kTokens, .last_token_id = 42, .prompt = {1, 2}};
    if (with_state) offer.state_slot = 2;
    producer->offer(std::move(offer));
  }
  PullResult result() {
    auto results = wait_for([&] { return consumer->poll_completed(); });
    if (results.empty()) return {.outcome = fail(Code::kDeadlineExceeded, "the test saw no result")};
    return results[0];
  }
  bool arrived(int64_t from = 0) {
    for (int64_t i = from; i < 7; ++i) {
      const auto tokens = static_cast<int>(std::min<int64_t>(kBlockSize, kTokens - i * kBlockSize));
      if (!same_tokens(prefill.data(), 3 + i, decode.data(), 40 - i, tokens)) return false;
    }
    return true;
  }
  // Everything P's engine held for the push, the offer included, comes back.
  size_t released(size_t wanted) {
    size_t seen = 0;
    while (seen < wanted) {
      const auto names = wait_for([&] { return producer->poll_released(); });
      if (names.empty()) break;
      seen += names.size();
    }
    return seen;
  }
};

TEST_F(Ends, EveryLayerOfEveryChunkArrivesAndIsVerified) {
  make();
  const auto params = start();
  EXPECT_TRUE(params.do_remote_decode);
  compute(params);
  const auto got = result();
  ASSERT_TRUE(got.outcome) << got.outcome.error().to_string();
  EXPECT_EQ(got.valid_tokens, kTokens);
  EXPECT_EQ(got.bytes, kGeometry.sealed_bytes(static_cast<int>(kTokens)));
  EXPECT_EQ(got.last_token, 42);
  EXPECT_TRUE(arrived());
  EXPECT_EQ(released(4), 4u);
  answer({});
}

TEST_F(Ends, ALocalPrefixIsNotPushedAndTheStateComesLast) {
  make();
  compute(start(2 * kBlockSize, 1), true);
  const auto got = result();
  ASSERT_TRUE(got.outcome) << got.outcome.error().to_string();
  EXPECT_TRUE(got.state_valid);
  EXPECT_TRUE(arrived(2));
  EXPECT_FALSE(arrived(0));
  EXPECT_EQ(std::memcmp(prefill.data().data() + kLayout.slot_offset(2), decode.data().data() + kLayout.slot_offset(1),
                        static_cast<size_t>(kLayout.states.block_bytes())),
            0);
}

TEST_F(Ends, SecretsMustAgree) {
  auto p = options("p"), d = options("d");
  p.secret = "one";
  d.secret = "two";
  make(std::move(p), std::move(d));
  compute(start());
  EXPECT_EQ(released(4), 4u) << "P holds nothing for a push that failed";
  answer({});
  EXPECT_FALSE(result().outcome);
}

TEST_F(Ends, AMetaserverThatSaysNoEndsTheWaitAtOnce) {
  make();
  start();
  answer(fail(Code::kUnavailable, "502"));
  const auto got = result();
  ASSERT_FALSE(got.outcome);
  EXPECT_EQ(got.valid_tokens, 0);
}

TEST_F(Ends, APrefillThatIsOverWithoutKvIsGivenUpSoon) {
  make();
  start();
  answer({});
  EXPECT_EQ(result().outcome.error().code(), Code::kDeadlineExceeded);
}

TEST_F(Ends, ALatePushReachesNoBlock) {
  make();
  const auto params = start();
  consumer->cancel("r-0-1");
  EXPECT_EQ(result().outcome.error().code(), Code::kCancelled);
  compute(params);
  EXPECT_EQ(released(4), 4u);
  EXPECT_FALSE(arrived());
  for (const auto byte : decode.data()) ASSERT_EQ(byte, std::byte{0});
}

TEST_F(Ends, AForgedGrantIsNobodys) {
  make();
  auto params = start();
  ++params.baton_offer_id;
  compute(params);
  EXPECT_EQ(released(4), 4u);
  answer({});
  EXPECT_FALSE(result().outcome);
}

TEST_F(Ends, AnotherPTakesOverWhereOneGaveUp) {
  make();
  const auto params = start();
  producer->plan_push({.request_id = "p-0-1",
                       .params = params,
                       .token_count = kTokens,
                       .prompt = {1, 2},
                       .first_block = 0,
                       .blocks = {BlockId(3)},
                       .ticket = "t"});
  producer->entries_ready(kLayers);
  EXPECT_EQ(released(1), 1u);
  producer = *make_layerwise_producer(options("p1"), prefill.data());
  compute(params);
  const auto got = result();
  ASSERT_TRUE(got.outcome) << got.outcome.error().to_string();
  EXPECT_TRUE(arrived());
}

}  // namespace
}  // namespace baton::transfer
