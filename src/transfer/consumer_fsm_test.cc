#include "transfer/consumer_fsm.h"

#include <deque>
#include <set>

#include "transfer/fsm_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct ConsumerFsmTest : ::testing::Test {
  ConsumerFsmOptions options{.identity = identity("d"), .holdings = kHoldings, .slice_bytes = 2 * kBlockBytes};
  ConsumerFsm fsm{options};
  TimePoint now{seconds(100)};
  ConnectionId connection = 0;
  std::vector<ConsumerAction> actions;

  Pull pull(std::string request = "r", int64_t tokens = 18, int64_t skip = 0) {
    Pull p{.request_id = std::move(request), .token_count = tokens, .skip_tokens = skip};
    p.params.remote_engine_id = "p";
    p.params.remote_host = "h";
    p.params.remote_port = 1;
    p.params.baton_offer_id = 77;
    for (int32_t b = 0; b < (tokens + kBlockSize - 1) / kBlockSize; ++b) p.blocks.push_back(BlockId(100 + b));
    return p;
  }
  void take() { actions = fsm.take_actions(); }
  template <typename M>
  std::vector<M> messages() {
    return sent<M, SendToPeer>(actions);
  }
  std::vector<PullResult> results() {
    std::vector<PullResult> found;
    for (const auto& c : only<Complete>(actions)) found.push_back(c.result);
    return found;
  }
  void connect(bool shm, uint64_t nonce = 1) {
    connection = only<Connect>(actions).at(0).connection;
    fsm.on_connected(connection, now);
    take();
    ASSERT_EQ(messages<wire::Hello>().size(), 1u);
    auto reply = hello_reply(shm);
    reply.identity.instance_nonce = nonce;
    fsm.on_message(connection, reply, now);
    take();
    if (shm) {
      ASSERT_EQ(only<MapArena>(actions).size(), 1u);
      fsm.on_mapped(connection, {}, now);
      take();
    }
  }
  wire::OfferReply offer(int64_t tokens = 18) {
    wire::OfferReply reply{.call = messages<wire::OfferQuery>().at(0).call, .offer_id = 77, .token_count = tokens};
    for (int32_t b = 0; b < (tokens + kBlockSize - 1) / kBlockSize; ++b) {
      reply.blocks.push_back(10 + b);
      reply.generations.push_back(2);
    }
    return reply;
  }
  void start_moving(bool shm) {
    fsm.start(pull(), now);
    take();
    connect(shm);
    fsm.on_message(connection, offer(), now);
    take();
  }
  // Of part `part` of a read.
  wire::BlockData data(const wire::ReadBlocks& read, uint32_t part) {
    const uint32_t tokens = std::min<uint32_t>(kBlockSize, 18 - read.parts.at(part).place * kBlockSize);
    return {.call = read.call,
            .offer_id = 77,
            .part = part,
            .tokens = tokens,
            .generation = 2,
            .span = kAllUnits,
            .last = part + 1 == read.parts.size(),
            .checksums = std::vector<uint64_t>(kLayers * kHeads)};
  }
  int64_t payload(const wire::BlockData& d) { return kBlockBytes / kBlockSize * d.tokens; }
  bool deliver(const wire::BlockData& d) {
    const auto target = fsm.on_block_data(connection, d, payload(d), now);
    if (target) fsm.on_stored(target->leg, d, payload(d), {}, now);
    return target.has_value();
  }
};

TEST_F(ConsumerFsmTest, PullsInSlicesOverSharedMemoryAndSaysDone) {
  start_moving(true);
  for (size_t want : {2, 2, 1}) {
    const auto copy = only<CopyParts>(actions).at(0);
    ASSERT_EQ(copy.parts.size(), want);
    EXPECT_EQ(copy.parts[0].from + 90, copy.parts[0].pieces.at(0).to);
    fsm.on_copied(copy.leg, want, {}, now);
    take();
  }
  ASSERT_EQ(results().size(), 1u);
  EXPECT_TRUE(results()[0].outcome);
  EXPECT_EQ(results()[0].valid_tokens, 18);
  EXPECT_EQ(results()[0].bytes, kBlockBytes / kBlockSize * 18);
  ASSERT_EQ(messages<wire::EndOffer>().size(), 1u);
  EXPECT_TRUE(messages<wire::EndOffer>()[0].done);
}

TEST_F(ConsumerFsmTest, TheKvOfAnotherPromptIsRefused) {
  fsm.start(pull(), now);
  take();
  connect(true);
  auto reply = offer();
  reply.prompt = {1, 2};
  fsm.on_message(connection, reply, now);
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].valid_tokens, 0);
  ASSERT_FALSE(results()[0].outcome);
  EXPECT_EQ(results()[0].outcome.error().code(), Code::kMismatch);
  EXPECT_TRUE(only<CopyParts>(actions).empty());
}

TEST_F(ConsumerFsmTest, ALocalPrefixIsNotPulledAndAFullOneOnlyDeclines) {
  fsm.start(pull("r", 18, 8), now);
  take();
  connect(true);
  fsm.on_message(connection, offer(), now);
  take();
  EXPECT_EQ(only<CopyParts>(actions).at(0).parts[0].from, 12);
  fsm.start(pull("full", 16, 16), now);
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_TRUE(results()[0].outcome);
  EXPECT_EQ(messages<wire::EndOffer>().size(), 1u);
}

TEST_F(ConsumerFsmTest, PullsOverTcpWithTwoReadsAhead) {
  start_moving(false);
  auto reads = messages<wire::ReadBlocks>();
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_TRUE(deliver(data(reads[0], 0)));
  EXPECT_FALSE(deliver(data(reads[0], 0)));  // twice: not stored again
  EXPECT_TRUE(deliver(data(reads[0], 1)));
  take();
  const auto third = messages<wire::ReadBlocks>();
  ASSERT_EQ(third.size(), 1u);
  EXPECT_TRUE(deliver(data(reads[1], 0)));
  EXPECT_TRUE(deliver(data(reads[1], 1)));
  EXPECT_TRUE(deliver(data(third[0], 0)));
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].valid_tokens, 18);
}

// The reads of many pulls share one connection, on which P allows a few at a time and refuses more.
struct ManyPullsTest : ConsumerFsmTest {
  static constexpr int kPulls = 12;
  std::deque<wire::ReadBlocks> asked;  // by D, not yet served by P
  std::set<std::string> succeeded;
  size_t most = 0;

  void start_all() {
    for (int i = 0; i < kPulls; ++i) {
      auto p = pull("r" + std::to_string(i));
      p.params.baton_offer_id = 100 + static_cast<uint64_t>(i);
      fsm.start(p, now);
    }
    take();
    connect(false);
    const auto queries = messages<wire::OfferQuery>();
    ASSERT_EQ(queries.size(), size_t{kPulls});
    for (const auto& query : queries) {
      wire::OfferReply reply{.call = query.call, .offer_id = query.offer_id, .token_count = 18};
      for (int32_t b = 0; b < 5; ++b) {
        reply.blocks.push_back(b);
        reply.generations.push_back(2);
      }
      fsm.on_message(connection, reply, now);
    }
    look();
  }
  void look() {
    take();
    for (auto& read : messages<wire::ReadBlocks>()) asked.push_back(read);
    for (const auto& result : results()) {
      if (result.outcome) succeeded.insert(result.request_id);
    }
    most = std::max(most, asked.size());
  }
  void serve_one() {
    const auto read = asked.front();
    for (uint32_t i = 0; i < read.parts.size(); ++i) {
      auto frame = data(read, i);
      frame.offer_id = read.offer_id;
      if (i + 1 == read.parts.size()) asked.pop_front();  // P is done with it once the last frame is on its way
      deliver(frame);
      look();
    }
  }
};

TEST_F(ManyPullsTest, NeverMoreReadsAreUnderWayThanPAllows) {
  start_all();
  while (!asked.empty()) serve_one();
  EXPECT_EQ(succeeded.size(), size_t{kPulls});
  EXPECT_LE(most, size_t{wire::kReadsMax} / 2);
}

TEST_F(ManyPullsTest, ReadsOfPullsThatHaveGoneStillCount) {
  start_all();
  for (int i = 0; i < 6; ++i) fsm.cancel("r" + std::to_string(i), now);
  look();
  EXPECT_LE(asked.size(), size_t{wire::kReadsMax} / 2);
  while (!asked.empty()) serve_one();
  EXPECT_EQ(succeeded.size(), size_t{kPulls} - 6);
  EXPECT_LE(most, size_t{wire::kReadsMax} / 2);
}

TEST_F(ManyPullsTest, WaitingForATurnIsNotSilence) {
  start_all();
  while (!asked.empty()) {
    now += options.reply_timeout - milliseconds(1);
    fsm.tick(now);
    look();
    serve_one();
  }
  EXPECT_EQ(succeeded.size(), size_t{kPulls});
}

// P answers in order: over a slow link the question stands behind the bytes that were asked for before.
TEST_F(ManyPullsTest, AnOfferAskedForBehindReadsIsNotSilence) {
  start_all();
  auto late = pull("late");
  late.params.baton_offer_id = 999;
  fsm.start(late, now);
  take();
  const auto query = messages<wire::OfferQuery>().at(0);
  for (size_t before = asked.size(); before > 0; --before) {
    now += options.reply_timeout - milliseconds(1);
    fsm.tick(now);
    look();
    EXPECT_TRUE(messages<wire::OfferQuery>().empty()) << "asked again";
    serve_one();
  }
  // What was asked for after it comes behind the answer.
  ASSERT_FALSE(asked.empty());
  now += options.reply_timeout / 2;
  serve_one();
  EXPECT_TRUE(messages<wire::OfferQuery>().empty()) << "asked again";
  now += options.reply_timeout / 2;
  for (int i = 0; i < 20 && messages<wire::OfferQuery>().empty(); ++i) {
    fsm.tick(now);
    take();
    now = std::max(now, *fsm.next_deadline());
  }
  ASSERT_FALSE(messages<wire::OfferQuery>().empty()) << "now it is silence";
  EXPECT_EQ(messages<wire::OfferQuery>()[0].offer_id, query.offer_id);
}

TEST_F(ManyPullsTest, ReadsThatNobodyAnswersDontHoldTheOthersUp) {
  start_all();
  asked.pop_front();  // lost
  for (int i = 0; i < 200 && fsm.live_pulls() > 0; ++i) {
    while (!asked.empty()) serve_one();
    now = std::max(now, *fsm.next_deadline());
    fsm.tick(now);
    look();
    for (const auto& query : messages<wire::OfferQuery>()) {
      auto reply = wire::OfferReply{.call = query.call, .offer_id = query.offer_id, .token_count = 18};
      reply.blocks = {0, 1, 2, 3, 4};
      reply.generations.assign(5, 2);
      fsm.on_message(connection, reply, now);
      look();
    }
  }
  EXPECT_EQ(succeeded.size(), size_t{kPulls});
}

TEST_F(ConsumerFsmTest, FramesThatDontFitAreNeverStored) {
  const auto refused = [&](auto change) {
    fsm = ConsumerFsm(options);
    start_moving(false);
    auto d = data(messages<wire::ReadBlocks>().at(0), 0);
    int64_t bytes = payload(d);
    change(d, bytes);
    return !fsm.on_block_data(connection, d, bytes, now).has_value();
  };
  EXPECT_TRUE(refused([](auto& d, auto&) { d.part = 1; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.part = 0xFFFFFFFF; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.span.first_entry = 1; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.span.entry_count = 0xFFFFFFFF; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.span.entry_count = 0; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.span.first_unit = 1; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.span.unit_count = 1; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.generation = 4; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.tokens = 3; }));
  EXPECT_TRUE(refused([](auto&, auto& bytes) { bytes += 64; }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.checksums.pop_back(); }));
  EXPECT_TRUE(refused([](auto& d, auto&) { d.call += 1000; }));
  EXPECT_FALSE(refused([](auto&, auto&) {}));
}

TEST_F(ConsumerFsmTest, AStaleGenerationEndsThePullWithTheGoodPrefix) {
  start_moving(true);
  const auto copy = only<CopyParts>(actions).at(0);
  fsm.on_copied(copy.leg, 1, fail(Code::kFailedPrecondition, "block 11 was reopened"), now);
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].valid_tokens, kBlockSize);
  EXPECT_FALSE(results()[0].outcome);
  EXPECT_FALSE(messages<wire::EndOffer>().at(0).done);
}

TEST_F(ConsumerFsmTest, AFailedChecksumIsTriedAgainThenGivenUp) {
  start_moving(true);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto copy = only<CopyParts>(actions).at(0);
    EXPECT_EQ(copy.parts[0].from, attempt == 1 ? 10 : 11);
    fsm.on_copied(copy.leg, attempt == 1 ? 1 : 0, fail(Code::kDataLoss, "checksum"), now);
    take();
    if (attempt == 3) break;
    ASSERT_TRUE(results().empty());
    now += seconds(1);
    fsm.tick(now);
    take();
    fsm.on_message(connection, offer(), now);
    take();
  }
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].valid_tokens, kBlockSize);
  EXPECT_EQ(results()[0].outcome.error().code(), Code::kDataLoss);
}

TEST_F(ConsumerFsmTest, CancelWaitsForTheRunningCopy) {
  start_moving(true);
  const auto copy = only<CopyParts>(actions).at(0);
  fsm.cancel("r", now);
  take();
  EXPECT_TRUE(results().empty());
  fsm.on_copied(copy.leg, 2, {}, now);
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].outcome.error().code(), Code::kCancelled);
  EXPECT_TRUE(only<CopyParts>(actions).empty());
  EXPECT_FALSE(messages<wire::EndOffer>().at(0).done);
}

TEST_F(ConsumerFsmTest, AfterACancelNoFrameIsStored) {
  start_moving(false);
  const auto reads = messages<wire::ReadBlocks>();
  fsm.cancel("r", now);
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_FALSE(deliver(data(reads[0], 0)));
  fsm.cancel("r", now);
  fsm.cancel("unknown", now);
  take();
  EXPECT_TRUE(results().empty());
}

TEST_F(ConsumerFsmTest, AnAbortBeforeTheOfferIsAnsweredEndsThePullOnce) {
  fsm.start(pull(), now);
  take();
  connect(true);
  const auto late = offer();
  fsm.cancel("r", now);
  take();
  EXPECT_EQ(results().size(), 1u);
  fsm.on_message(connection, late, now);
  take();
  EXPECT_TRUE(results().empty());
  EXPECT_TRUE(only<CopyParts>(actions).empty());
}

TEST_F(ConsumerFsmTest, ARejectedHeartbeatMeansTheKvIsLost) {
  start_moving(false);
  EXPECT_TRUE(deliver(data(messages<wire::ReadBlocks>().at(0), 0)));
  fsm.on_message(connection, wire::RenewReply{1, {77}}, now);
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].outcome.error().code(), Code::kUnavailable);
  EXPECT_EQ(results()[0].valid_tokens, kBlockSize);
}

TEST_F(ConsumerFsmTest, HeartbeatsComeEverySixthOfTheLease) {
  fsm.hold(pull().params, now);
  take();
  connect(true);
  EXPECT_EQ(messages<wire::Renew>().size(), 1u);
  EXPECT_EQ(messages<wire::Renew>()[0].offer_ids, std::vector<uint64_t>{77});
  fsm.on_message(connection, wire::RenewReply{messages<wire::Renew>()[0].call, {}}, now);
  now += seconds(5);
  EXPECT_LE(*fsm.next_deadline(), now);
  fsm.tick(now);
  take();
  EXPECT_EQ(messages<wire::Renew>().size(), 1u);
  fsm.decline(pull().params, now);
  take();
  EXPECT_FALSE(messages<wire::EndOffer>().at(0).done);
  now += seconds(5);
  fsm.tick(now);
  take();
  EXPECT_TRUE(messages<wire::Renew>().empty());
}

TEST_F(ConsumerFsmTest, APeerThatAnswersNoHeartbeatIsConnectedAgain) {
  fsm.hold(pull().params, now);
  take();
  connect(true);
  for (int i = 0; i < 3; ++i) {
    now = std::max(now, *fsm.next_deadline());
    fsm.tick(now);
  }
  take();
  EXPECT_GE(only<Disconnect>(actions).size(), 1u);
  EXPECT_GE(only<Connect>(actions).size(), 1u);
}

TEST_F(ConsumerFsmTest, ARestartedPeerIsNotMistakenForTheOldOne) {
  start_moving(false);
  fsm.on_disconnected(connection, Status(Code::kUnavailable, "reset"), now);
  take();
  EXPECT_TRUE(results().empty());
  now += seconds(3);
  fsm.tick(now);
  take();
  connect(false, /*nonce=*/2);
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].outcome.error().code(), Code::kUnavailable);
  EXPECT_NE(results()[0].outcome.error().message().find("restarted"), std::string::npos);
}

TEST_F(ConsumerFsmTest, ABrokenConnectionIsMadeAgainAndThePullGoesOnWhereItWas) {
  start_moving(false);
  EXPECT_TRUE(deliver(data(messages<wire::ReadBlocks>().at(0), 0)));
  fsm.on_disconnected(connection, Status(Code::kUnavailable, "reset"), now);
  take();
  now += seconds(3);
  fsm.tick(now);
  take();
  connect(false);
  fsm.on_message(connection, offer(), now);
  take();
  EXPECT_EQ(messages<wire::ReadBlocks>().at(0).parts.at(0).place, 1u);
}

TEST_F(ConsumerFsmTest, AnotherIdentityIsRefusedWithBothValues) {
  fsm.start(pull(), now);
  take();
  connection = only<Connect>(actions).at(0).connection;
  fsm.on_connected(connection, now);
  auto reply = hello_reply();
  reply.identity.model_fingerprint = "other";
  fsm.on_message(connection, reply, now);
  take();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].outcome.error().code(), Code::kMismatch);
  EXPECT_NE(results()[0].outcome.error().message().find("model fingerprint: ours m, theirs other"), std::string::npos);
  EXPECT_EQ(only<Disconnect>(actions).size(), 1u);
}

TEST_F(ConsumerFsmTest, TheWrongEngineBehindTheAddressIsNoticed) {
  auto p = pull();
  p.params.remote_engine_id = "someone";
  fsm.start(p, now);
  take();
  connect(true);
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].outcome.error().code(), Code::kMismatch);
}

TEST_F(ConsumerFsmTest, WithoutSharedMemoryItUsesTcpUnlessShmWasDemanded) {
  fsm.start(pull(), now);
  take();
  connection = only<Connect>(actions).at(0).connection;
  fsm.on_connected(connection, now);
  fsm.on_message(connection, hello_reply(), now);
  fsm.on_mapped(connection, fail(Code::kUnavailable, "another host"), now);
  take();
  fsm.on_message(connection, offer(), now);
  take();
  EXPECT_FALSE(messages<wire::ReadBlocks>().empty());

  options.transport = TransportMode::kShm;
  ConsumerFsm strict(options);
  strict.start(pull(), now);
  const auto first = only<Connect>(strict.take_actions()).at(0).connection;
  strict.on_connected(first, now);
  strict.on_message(first, hello_reply(), now);
  strict.on_mapped(first, fail(Code::kUnavailable, "another host"), now);
  const auto done = only<Complete>(strict.take_actions());
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].result.outcome.error().code(), Code::kMismatch);
}

TEST_F(ConsumerFsmTest, AnUnreachablePeerCostsABoundedNumberOfAttempts) {
  fsm.start(pull(), now);
  int connects = 0;
  for (int i = 0; i < 100 && fsm.live_pulls() > 0; ++i) {
    take();
    for (const auto& c : only<Connect>(actions)) {
      ++connects;
      fsm.on_disconnected(c.connection, Status(Code::kUnavailable, "refused"), now);
    }
    if (const auto next = fsm.next_deadline()) now = std::max(now, *next);
    fsm.tick(now);
  }
  EXPECT_EQ(fsm.live_pulls(), 0u);
  EXPECT_EQ(connects, 3);
}

TEST_F(ConsumerFsmTest, SilenceEndsByItsDeadline) {
  const TimePoint began = now;
  start_moving(false);
  for (int i = 0; i < 100 && fsm.live_pulls() > 0; ++i) {
    now = std::max(now, *fsm.next_deadline());
    fsm.tick(now);
  }
  take();
  EXPECT_EQ(fsm.live_pulls(), 0u);
  EXPECT_LT(now - began, seconds(30));
}

TEST_F(ConsumerFsmTest, ParamsOfAnotherSystemAreRefusedByName) {
  auto p = pull();
  p.params.baton_offer_id = 0;
  fsm.start(p, now);
  take();
  EXPECT_NE(results().at(0).outcome.error().message().find("baton_offer_id"), std::string::npos);
}

TEST_F(ConsumerFsmTest, AnIdleConnectionIsGivenUp) {
  start_moving(true);
  fsm.cancel("r", now);
  const auto copy = only<CopyParts>(actions).at(0);
  fsm.on_copied(copy.leg, 2, {}, now);
  take();
  fsm.on_message(connection, wire::EndReply{1, 77, true}, now);
  for (int i = 0; i < 20; ++i) {
    const auto next = fsm.next_deadline();
    if (!next) break;
    now = std::max(now, *next);
    fsm.tick(now);
  }
  EXPECT_EQ(only<Disconnect>(fsm.take_actions()).size(), 1u);
  EXPECT_EQ(fsm.next_deadline(), std::nullopt);
}

}  // namespace
}  // namespace baton::transfer
