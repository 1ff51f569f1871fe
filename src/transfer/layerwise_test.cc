// Layerwise pushes: what a grant takes, and both ends over real sockets.
#include "transfer/layerwise_connector.h"
#include "transfer/layerwise_grant.h"
#include "transfer/pull_test_support.h"
#include "transfer/reshard_plan.h"

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

const auto kWhole = std::make_shared<const Holdings>(*make_holdings({whole_cache(kLayout)}, 1));
const auto kPlan = std::make_shared<const ReshardPlan>(kWhole, kWhole, 0);

wire::PushData data_of(uint32_t entry, uint32_t first, uint32_t count) {
  return {.grant_id = kGrant,
          .span = {entry, 1, 0, kHeads},
          .first_place = first,
          .place_count = count,
          .checksums = std::vector<uint64_t>(size_t{count} * kHeads)};
}
int64_t bytes_of(uint32_t first, uint32_t count) {
  int64_t tokens = 0;
  for (uint32_t b = first; b < first + count; ++b) tokens += std::min<int64_t>(kBlockSize, kTokens - b * kBlockSize);
  return tokens * 2 * kHeads * 64 * 2;
}
wire::PushOpen opening(uint64_t push = 1) {
  return {.grant_id = kGrant, .push_id = push, .token_count = kTokens, .prompt = {1, 2}, .has_state = true};
}

TEST(Grant, CountsTheLongestPrefixWhateverTheOrder) {
  Grant grant(pull_of(kTokens, 2 * kBlockSize));
  EXPECT_EQ(grant.valid_tokens(), 2 * kBlockSize);
  ASSERT_TRUE(grant.open(7, opening(), {.process = 1}, kPlan));
  PushLeg& leg = *grant.leg(7);
  EXPECT_EQ(grant.valid_tokens(), 2 * kBlockSize);
  for (uint32_t entry = kLayers; entry-- > 0;) {
    for (const auto& [first, count] : {std::pair(4u, 3u), std::pair(2u, 2u)}) {
      const auto data = data_of(entry, first, count);
      PartMoves moves;
      const auto placed = leg.place(data, bytes_of(first, count), moves);
      ASSERT_TRUE(placed) << placed.error().to_string();
      EXPECT_EQ(moves.moves.units.size(), data.checksums.size());
      EXPECT_FALSE(leg.complete());
      leg.stored(data);
      EXPECT_FALSE(leg.place(data, bytes_of(first, count), moves)) << "what is verified is not written over";
      if (entry == 0 && first == 4) EXPECT_EQ(grant.valid_tokens(), 2 * kBlockSize);
    }
  }
  EXPECT_TRUE(leg.complete());
  EXPECT_EQ(grant.valid_tokens(), kTokens);
  EXPECT_FALSE(grant.finished());
  grant.end(7);
  EXPECT_TRUE(grant.finished());
  EXPECT_TRUE(grant.outcome());
}

TEST(Grant, WhatDoesNotFitHasNoPlace) {
  const auto pull = pull_of(kTokens, 2 * kBlockSize);
  const PushLeg leg(kPlan, pull);
  PartMoves moves;
  EXPECT_TRUE(leg.place(data_of(0, 2, 5), bytes_of(2, 5), moves));
  moves.clear();
  const auto refused = [&](const wire::PushData& data, int64_t bytes) {
    return !leg.place(data, bytes, moves) && moves.moves.runs.empty();
  };
  EXPECT_TRUE(refused(data_of(0, 1, 1), bytes_of(1, 1))) << "D has it: it may be shared with others";
  EXPECT_TRUE(refused(data_of(0, 6, 2), bytes_of(2, 2)));
  EXPECT_TRUE(refused(data_of(0, 0xFFFFFFFF, 2), bytes_of(2, 2)));
  EXPECT_TRUE(refused(data_of(kLayers, 2, 1), bytes_of(2, 1)));
  EXPECT_TRUE(refused(data_of(0, 2, 1), bytes_of(2, 1) - 1));
  auto few = data_of(0, 2, 1);
  few.checksums.pop_back();
  EXPECT_TRUE(refused(few, bytes_of(2, 1)));
  auto heads = data_of(0, 2, 1);
  heads.span.unit_count = 2;
  EXPECT_TRUE(refused(heads, bytes_of(2, 1) / kHeads * 2)) << "units of one destination come together";
  auto beyond = data_of(kLayers - 1, 2, 1);
  beyond.span.entry_count = 0xFFFFFFFF;
  EXPECT_TRUE(refused(beyond, bytes_of(2, 1)));
  auto rank = data_of(0, 2, 1);
  rank.rank = 1;
  EXPECT_TRUE(refused(rank, bytes_of(2, 1)));
  auto state = data_of(0, 0, 1);
  state.state = true;
  state.span = {0, 3, 0, 4};
  EXPECT_TRUE(refused(state, 3 * 4 * 4096)) << "none is wanted";
}

TEST(Grant, IsForOnePromptAlone) {
  Grant grant(pull_of(kTokens, 0, 1));
  auto other = opening();
  other.prompt = {1, 3};
  EXPECT_FALSE(grant.open(1, other, {.process = 1}, kPlan));
  other = opening();
  ++other.token_count;
  EXPECT_FALSE(grant.open(1, other, {.process = 1}, kPlan));
  other = opening();
  other.has_state = false;
  EXPECT_FALSE(grant.open(1, other, {.process = 1}, kPlan));
  EXPECT_FALSE(grant.open(1, opening(0), {.process = 1}, kPlan));
  EXPECT_TRUE(grant.open(1, opening(), {.process = 1}, kPlan));
}

TEST(Grant, OneEngineWritesAtATime) {
  Grant grant(pull_of(kTokens));
  ASSERT_TRUE(grant.open(1, opening(5), {.process = 1}, kPlan));
  EXPECT_FALSE(grant.open(2, opening(5), {.process = 1}, kPlan)) << "it writes already";
  EXPECT_FALSE(grant.open(2, opening(5), {.process = 2}, kPlan)) << "it said that it is one process";
  EXPECT_TRUE(grant.lose(1, Status(Code::kUnavailable, "gone")));
  EXPECT_TRUE(grant.lost());
  ASSERT_TRUE(grant.open(3, opening(6), {.process = 1}, kPlan));
  EXPECT_FALSE(grant.lost());
  EXPECT_EQ(grant.leg(1), nullptr);
  EXPECT_NE(grant.leg(3), nullptr);
  EXPECT_FALSE(grant.open(4, opening(5), {.process = 2}, kPlan)) << "the one before does not come back";
  EXPECT_FALSE(grant.lose(1, Status(Code::kUnavailable, "gone")));
  EXPECT_FALSE(grant.lost());
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
  static PushStep step_of(const wire::KvTransferParams& params, int64_t begin, int64_t end, bool with_state,
                          uint64_t push_id = 77) {
    PushStep step{.step = static_cast<uint64_t>(begin) + 1,
                  .request_id = "p-0-1",
                  .push_id = push_id,
                  .host = params.remote_host,
                  .port = params.remote_port,
                  .grant_id = params.baton_offer_id,
                  .token_count = kTokens,
                  .prompt = {1, 2},
                  .has_state = with_state,
                  .begin_token = begin,
                  .end_token = end,
                  .ticket = "t" + std::to_string(begin)};
    for (int64_t i = begin / kBlockSize; i * kBlockSize < end; ++i) {
      step.blocks.push_back(BlockId(static_cast<int32_t>(3 + i)));
    }
    return step;
  }
  // Steps of two blocks and a half, layer by layer.
  void compute(const wire::KvTransferParams& params, bool with_state = false, uint64_t push_id = 77) {
    for (int64_t begin = 0; begin < kTokens; begin += 40) {
      auto step = step_of(params, begin, std::min<int64_t>(kTokens, begin + 40), with_state, push_id);
      const uint64_t number = step.step;
      producer->plan_push(std::move(step));
      for (int layer = 1; layer <= kLayers; ++layer) producer->entries_ready(0, number, layer);
      producer->entries_ready(0, number, kLayers);
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
  producer->plan_push(step_of(params, 0, kBlockSize, false));
  producer->entries_ready(0, 1, kLayers);
  EXPECT_EQ(released(1), 1u);
  producer = *make_layerwise_producer(options("p1"), prefill.data());
  compute(params, false, 78);
  const auto got = result();
  ASSERT_TRUE(got.outcome) << got.outcome.error().to_string();
  EXPECT_TRUE(arrived());
}

}  // namespace
}  // namespace baton::transfer
