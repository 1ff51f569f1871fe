#include "transfer/producer_fsm.h"

#include "transfer/fsm_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::seconds;

struct ProducerFsmTest : ::testing::Test {
  ProducerFsm fsm{{.hello = hello_reply(), .holdings = kHoldings, .lease = seconds(30)}};
  TimePoint now{seconds(100)};

  void greet(ConnectionId connection) {
    fsm.on_message(connection, wire::Hello{identity("d")}, now);
    ASSERT_EQ((sent<wire::HelloReply, SendToConnection>(fsm.take_actions()).size()), 1u);
  }
  void offer(uint64_t id, std::string request, std::vector<int32_t> blocks, int64_t tokens) {
    Offer o{.request_id = std::move(request), .blocks = {}, .token_count = tokens};
    for (int32_t b : blocks) o.blocks.push_back(BlockId(b));
    fsm.offer(id, o, now);
  }
  void offer_sealed(uint64_t id, std::string request, std::vector<int32_t> blocks, int64_t tokens) {
    offer(id, std::move(request), std::move(blocks), tokens);
    const auto seals = only<SealBlocks>(fsm.take_actions());
    ASSERT_EQ(seals.size(), 1u);
    fsm.on_sealed(id, std::vector<uint64_t>(seals[0].blocks.size(), 2), now);
  }
  std::vector<std::string> released() {
    std::vector<std::string> names;
    for (const auto& r : only<Release>(fsm.take_actions())) names.push_back(r.request_id);
    return names;
  }
};

TEST_F(ProducerFsmTest, AQueryBeforeTheSealIsAnsweredAfterIt) {
  greet(1);
  offer(7, "r", {5, 6}, 5);
  fsm.on_message(1, wire::OfferQuery{10, 7}, now);
  auto actions = fsm.take_actions();
  EXPECT_TRUE((sent<wire::OfferReply, SendToConnection>(actions).empty()));
  ASSERT_EQ(only<SealBlocks>(actions).size(), 1u);
  EXPECT_EQ(only<SealBlocks>(actions)[0].blocks[1].tokens, 1);
  fsm.on_sealed(7, {2, 4}, now);
  const auto replies = sent<wire::OfferReply, SendToConnection>(fsm.take_actions());
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].call, 10u);
  EXPECT_EQ(replies[0].blocks, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(replies[0].generations, (std::vector<uint64_t>{2, 4}));
}

TEST_F(ProducerFsmTest, DuplicateAndUnknownDoneAreHarmless) {
  greet(1);
  offer_sealed(7, "r", {5}, 4);
  fsm.on_message(1, wire::EndOffer{1, 99, true}, now);
  EXPECT_TRUE(released().empty());
  fsm.on_message(1, wire::EndOffer{2, 7, true}, now);
  auto actions = fsm.take_actions();
  EXPECT_TRUE((sent<wire::EndReply, SendToConnection>(actions)[0].known));
  ASSERT_EQ(only<ReopenBlocks>(actions).size(), 1u);
  ASSERT_EQ(only<Release>(actions).size(), 1u);
  EXPECT_EQ(only<Release>(actions)[0].reason, EndReason::kDone);
  fsm.on_message(1, wire::EndOffer{3, 7, true}, now);
  actions = fsm.take_actions();
  EXPECT_FALSE((sent<wire::EndReply, SendToConnection>(actions)[0].known));
  EXPECT_TRUE(only<Release>(actions).empty());
}

TEST_F(ProducerFsmTest, LostDoneIsMadeUpForByTheLease) {
  offer_sealed(7, "r", {5}, 4);
  EXPECT_EQ(fsm.next_deadline(), now + seconds(30));
  fsm.tick(now + seconds(29));
  EXPECT_TRUE(released().empty());
  fsm.tick(now + seconds(30));
  EXPECT_EQ(released(), std::vector<std::string>{"r"});
  EXPECT_EQ(fsm.next_deadline(), std::nullopt);
}

TEST_F(ProducerFsmTest, DoneAfterExpiryIsHarmless) {
  greet(1);
  offer_sealed(7, "r", {5}, 4);
  fsm.tick(now + seconds(31));
  EXPECT_EQ(released().size(), 1u);
  fsm.on_message(1, wire::EndOffer{1, 7, true}, now + seconds(32));
  EXPECT_TRUE(released().empty());
}

TEST_F(ProducerFsmTest, ARenewKeepsALiveLeaseAndNeverRevivesADeadOne) {
  greet(1);
  offer_sealed(7, "r", {5}, 4);
  fsm.on_message(1, wire::Renew{1, {7, 8}}, now + seconds(25));
  auto replies = sent<wire::RenewReply, SendToConnection>(fsm.take_actions());
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].rejected, std::vector<uint64_t>{8});
  fsm.tick(now + seconds(44));
  EXPECT_TRUE(released().empty());
  // The lease has run out at 45 s; nobody ticked, and the renewal comes first.
  fsm.on_message(1, wire::Renew{2, {7}}, now + seconds(46));
  const auto actions = fsm.take_actions();
  EXPECT_EQ((sent<wire::RenewReply, SendToConnection>(actions)[0].rejected), std::vector<uint64_t>{7});
  EXPECT_EQ(only<Release>(actions).size(), 1u);
}

TEST_F(ProducerFsmTest, ADeadDecodeEngineKeepsOurMemoryForASixthOfTheLease) {
  greet(1);
  offer_sealed(7, "asked for", {5}, 4);
  offer_sealed(8, "renewed", {6}, 4);
  offer_sealed(9, "not heard of", {7}, 4);
  fsm.on_message(1, wire::OfferQuery{1, 7}, now);
  fsm.on_message(1, wire::Renew{2, {8}}, now + seconds(12));
  fsm.on_closed(1, now + seconds(13));
  fsm.tick(now + seconds(17));
  EXPECT_TRUE(released().empty());
  EXPECT_EQ(fsm.next_deadline(), now + seconds(18));
  fsm.tick(now + seconds(18));
  EXPECT_EQ(released(), (std::vector<std::string>{"asked for", "renewed"}));
  fsm.tick(now + seconds(29));
  EXPECT_TRUE(released().empty());
}

TEST_F(ProducerFsmTest, ADecodeEngineThatComesBackKeepsItsOffers) {
  greet(1);
  offer_sealed(7, "r", {5}, 4);
  fsm.on_message(1, wire::OfferQuery{1, 7}, now);
  fsm.on_closed(1, now + seconds(1));
  greet(2);
  fsm.on_message(2, wire::Renew{2, {7}}, now + seconds(2));
  fsm.tick(now + seconds(21));
  EXPECT_TRUE(released().empty());
  // It was on its new connection before the end of the old one was noticed.
  greet(3);
  fsm.on_message(3, wire::Renew{3, {7}}, now + seconds(21));
  fsm.on_closed(2, now + seconds(22));
  fsm.tick(now + seconds(40));
  EXPECT_TRUE(released().empty());
}

TEST_F(ProducerFsmTest, SharedBlocksAreReopenedWithTheLastOfferThatHoldsThem) {
  greet(1);
  offer_sealed(1, "a", {5, 6}, 8);
  offer_sealed(2, "b", {5, 7}, 8);
  fsm.on_message(1, wire::EndOffer{1, 1, true}, now);
  EXPECT_EQ(only<ReopenBlocks>(fsm.take_actions())[0].blocks, std::vector<int32_t>{6});
  fsm.on_message(1, wire::EndOffer{2, 2, false}, now);
  EXPECT_EQ(only<ReopenBlocks>(fsm.take_actions())[0].blocks, (std::vector<int32_t>{5, 7}));
  EXPECT_EQ(fsm.held_blocks(), 0);
}

TEST_F(ProducerFsmTest, BlocksAreNotReleasedWhileTheyAreSealedOrSent) {
  greet(1);
  offer(1, "a", {5}, 4);
  fsm.revoke("a");
  EXPECT_TRUE(released().empty());
  fsm.on_sealed(1, {2}, now);
  EXPECT_EQ(released(), std::vector<std::string>{"a"});

  offer_sealed(2, "b", {5, 6}, 8);
  fsm.on_message(1, read_blocks(9, 2, 1, 1), now);
  const auto sends = only<SendBlocks>(fsm.take_actions());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].parts[0].block, 6);
  fsm.on_message(1, wire::EndOffer{1, 2, false}, now);
  EXPECT_TRUE(released().empty());
  fsm.on_closed(1, now);
  EXPECT_TRUE(released().empty());
  fsm.on_blocks_sent(1, 2);
  EXPECT_EQ(released(), std::vector<std::string>{"b"});
}

TEST_F(ProducerFsmTest, ReadsOutsideTheOfferAreRefused) {
  greet(1);
  offer_sealed(2, "b", {5, 6}, 8);
  for (const auto& [first, count] : {std::pair{0u, 3u}, {2u, 1u}, {0u, 0u}, {0xFFFFFFFFu, 1u}}) {
    fsm.on_message(1, read_blocks(9, 2, first, count), now);
    const auto actions = fsm.take_actions();
    EXPECT_TRUE(only<SendBlocks>(actions).empty());
    EXPECT_EQ((sent<wire::ErrorReply, SendToConnection>(actions).at(0).code), Code::kOutOfRange);
  }
  fsm.on_message(1, read_blocks(9, 3, 0, 1), now);
  EXPECT_EQ((sent<wire::ErrorReply, SendToConnection>(fsm.take_actions()).at(0).code), Code::kNotFound);
  for (int i = 0; i < 8; ++i) fsm.on_message(1, read_blocks(9, 2, 0, 1), now);
  EXPECT_EQ(only<SendBlocks>(fsm.take_actions()).size(), 8u);
  fsm.on_message(1, read_blocks(9, 2, 0, 1), now);
  EXPECT_EQ((sent<wire::ErrorReply, SendToConnection>(fsm.take_actions()).at(0).code), Code::kResourceExhausted);
}

TEST_F(ProducerFsmTest, AStrangerIsTurnedAwayWithBothValues) {
  fsm.on_message(1, wire::OfferQuery{1, 1}, now);
  EXPECT_EQ(only<CloseConnection>(fsm.take_actions()).at(0).reason.code(), Code::kFailedPrecondition);
  auto other = identity("d");
  other.layout.block_size = 6;
  fsm.on_message(2, wire::Hello{other}, now);
  const auto actions = fsm.take_actions();
  EXPECT_TRUE((sent<wire::HelloReply, SendToConnection>(actions).empty()));
  const auto close = only<CloseConnection>(actions).at(0);
  EXPECT_EQ(close.reason.code(), Code::kMismatch);
  EXPECT_NE(close.reason.message().find("block size: ours 4, theirs 6"), std::string::npos);
  fsm.on_message(3, wire::HelloReply{}, now);
  EXPECT_EQ(only<CloseConnection>(fsm.take_actions()).size(), 1u);
}

TEST_F(ProducerFsmTest, MoreOffersThanTheBoundAreReleasedAtOnce) {
  ProducerFsm small({.hello = hello_reply(), .holdings = kHoldings, .offers_max = 1});
  small.offer(1, {.request_id = "a", .blocks = {BlockId(1)}, .token_count = 4}, now);
  small.take_actions();
  small.offer(2, {.request_id = "b", .blocks = {BlockId(2)}, .token_count = 4}, now);
  EXPECT_EQ(only<Release>(small.take_actions()).at(0).request_id, "b");
}

}  // namespace
}  // namespace baton::transfer
