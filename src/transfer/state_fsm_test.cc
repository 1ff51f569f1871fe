// Recurrent state in a hand-off, at the state machines: it comes after the blocks, is that of one exact prompt, and is
// held and released with the offer.
#include "transfer/fsm_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::seconds;

TEST(ProducerState, IsSealedOfferedServedAndReopenedWithTheBlocks) {
  ProducerFsm fsm{{.hello = hello_reply(), .holdings = kHoldings, .lease = seconds(30)}};
  const TimePoint now{seconds(100)};
  fsm.on_message(1, wire::Hello{identity("d")}, now);
  fsm.offer(7, {.request_id = "r", .blocks = {BlockId(5), BlockId(6)}, .token_count = 5, .state_slot = 3}, now);
  const auto seals = only<SealBlocks>(fsm.take_actions());
  ASSERT_EQ(seals.size(), 1u);
  ASSERT_EQ(seals[0].blocks.size(), 3u);
  EXPECT_TRUE(seals[0].blocks[2].state);
  EXPECT_EQ(seals[0].blocks[2].block, 3);
  EXPECT_EQ(seals[0].blocks[2].tokens, 1);
  fsm.on_sealed(7, {2, 4, 6}, now);
  fsm.on_message(1, wire::OfferQuery{10, 7}, now);
  const auto replies = sent<wire::OfferReply, SendToConnection>(fsm.take_actions());
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].blocks, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(replies[0].generations, (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(replies[0].state_slot, 3);
  EXPECT_EQ(replies[0].state_generation, 6u);
  fsm.on_message(1, read_blocks(11, 7, 0, 1, /*state=*/true), now);
  const auto sends = only<SendBlocks>(fsm.take_actions());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_TRUE(sends[0].ranks.at(0).state);
  EXPECT_EQ(sends[0].parts.at(0).block, 3);
  EXPECT_EQ(sends[0].parts.at(0).generation, 6u);
  fsm.on_message(1, wire::EndOffer{12, 7, true}, now);
  EXPECT_TRUE(only<ReopenBlocks>(fsm.take_actions()).empty()) << "a send still reads it";
  fsm.on_blocks_sent(1, 7);
  const auto reopened = only<ReopenBlocks>(fsm.take_actions());
  ASSERT_EQ(reopened.size(), 1u);
  EXPECT_EQ(reopened[0].slots, std::vector<int32_t>{3});
  EXPECT_EQ(reopened[0].blocks, (std::vector<int32_t>{5, 6}));
}

struct ConsumerState : ::testing::Test {
  ConsumerFsm fsm{{.identity = identity("d"), .holdings = kHoldings, .slice_bytes = 100 * kBlockBytes}};
  TimePoint now{seconds(100)};
  ConnectionId connection = 0;
  std::vector<ConsumerAction> actions;

  // Five blocks of which `skip` tokens are here, and the state into slot 9.
  void start(bool shm, int64_t skip = 0) {
    Pull pull{.request_id = "r", .token_count = 18, .skip_tokens = skip, .state_slot = 9};
    pull.params.remote_engine_id = "p";
    pull.params.remote_host = "h";
    pull.params.remote_port = 1;
    pull.params.baton_offer_id = 77;
    for (int32_t b = 0; b < 5; ++b) pull.blocks.push_back(BlockId(100 + b));
    fsm.start(std::move(pull), now);
    connection = only<Connect>(fsm.take_actions()).at(0).connection;
    fsm.on_connected(connection, now);
    fsm.on_message(connection, hello_reply(shm), now);
    if (shm) fsm.on_mapped(connection, {}, now);
    actions = fsm.take_actions();
  }
  wire::OfferReply offer() {
    const auto query = sent<wire::OfferQuery, SendToPeer>(actions).at(0);
    return {.call = query.call,
            .offer_id = 77,
            .token_count = 18,
            .blocks = {10, 11, 12, 13, 14},
            .generations = {2, 2, 2, 2, 2},
            .state_slot = 4,
            .state_generation = 8};
  }
  void answer(const wire::OfferReply& reply) {
    fsm.on_message(connection, reply, now);
    actions = fsm.take_actions();
  }
  std::optional<PullResult> result() {
    const auto complete = only<Complete>(actions);
    return complete.empty() ? std::nullopt : std::optional(complete[0].result);
  }
};

TEST_F(ConsumerState, IsCopiedAfterTheBlocks) {
  start(true);
  answer(offer());
  auto copy = only<CopyParts>(actions).at(0);
  EXPECT_EQ(copy.parts.size(), 5u);
  fsm.on_copied(copy.leg, 5, {}, now);
  actions = fsm.take_actions();
  EXPECT_FALSE(result());
  copy = only<CopyParts>(actions).at(0);
  ASSERT_EQ(copy.parts.size(), 1u);
  EXPECT_TRUE(copy.parts[0].state);
  EXPECT_EQ(copy.parts[0].from, 4);
  EXPECT_EQ(copy.parts[0].pieces.at(0).to, 9);
  EXPECT_EQ(copy.parts[0].generation, 8u);
  fsm.on_copied(copy.leg, 1, {}, now);
  actions = fsm.take_actions();
  ASSERT_TRUE(result());
  EXPECT_TRUE(result()->state_valid);
  EXPECT_EQ(result()->valid_tokens, 18);
  EXPECT_EQ(result()->bytes, kLayout.blocks.sealed_bytes(18) + kStateBytes);
}

TEST_F(ConsumerState, AStaleStateLeavesTheBlocksButIsNotValid) {
  start(true);
  answer(offer());
  auto copy = only<CopyParts>(actions).at(0);
  fsm.on_copied(copy.leg, 5, {}, now);
  fsm.take_actions();
  fsm.on_copied(copy.leg, 0, fail(Code::kFailedPrecondition, "reopened"), now);
  actions = fsm.take_actions();
  ASSERT_TRUE(result());
  EXPECT_FALSE(result()->outcome);
  EXPECT_FALSE(result()->state_valid);
  EXPECT_EQ(result()->valid_tokens, 18);
}

TEST_F(ConsumerState, WhatIsHereIsSkippedButTheStateIsNot) {
  start(true, 16);
  answer(offer());
  const auto copy = only<CopyParts>(actions).at(0);
  ASSERT_EQ(copy.parts.size(), 1u);
  EXPECT_EQ(copy.parts[0].from, 14);
}

TEST_F(ConsumerState, AnOfferWithoutItOrOfMoreTokensIsRefused) {
  const auto refused = [&](auto change) {
    fsm = ConsumerFsm({.identity = identity("d"), .holdings = kHoldings});
    start(true);
    auto reply = offer();
    change(reply);
    answer(reply);
    return result() && !result()->outcome && result()->outcome.error().code() == Code::kMismatch &&
           only<CopyParts>(actions).empty();
  };
  EXPECT_TRUE(refused([](auto& reply) { reply.state_slot = -1; }));
  EXPECT_TRUE(refused([](auto& reply) { reply.state_slot = 20; }));
  EXPECT_TRUE(refused([](auto& reply) { reply.token_count = 19; }));
  EXPECT_FALSE(refused([](auto&) {}));
}

TEST_F(ConsumerState, ComesInFramesOverTcp) {
  start(false);
  answer(offer());
  auto reads = sent<wire::ReadBlocks, SendToPeer>(actions);
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_TRUE(reads[1].ranks.at(0).state);
  EXPECT_EQ(reads[1].parts.size(), 1u);
  const auto deliver = [&](uint64_t call, uint32_t item, kv::EntryRange entries, int64_t spare = 0) {
    const bool state = item == 5;
    const auto& geometry = state ? kLayout.states : kLayout.blocks;
    const int tokens = state ? 1 : item == 4 ? 2 : kBlockSize;
    const wire::BlockData data{
        .call = call,
        .offer_id = 77,
        .part = state ? 0 : item,
        .tokens = static_cast<uint32_t>(tokens),
        .generation = state ? 8u : 2u,
        .span = {static_cast<uint32_t>(entries.first), static_cast<uint32_t>(entries.count), 0, state ? 2u : kHeads},
        .checksums = std::vector<uint64_t>(static_cast<size_t>(geometry.unit_count(entries)))};
    const int64_t bytes = geometry.sealed_bytes(tokens, entries) + spare;
    const auto target = fsm.on_block_data(connection, data, bytes, now);
    if (!target) return false;
    EXPECT_EQ(target->part.state, state);
    EXPECT_EQ(target->part.pieces.at(0).to, state ? 9 : 100 + static_cast<int>(item));
    fsm.on_stored(target->leg, data, bytes, {}, now);
    return true;
  };
  for (uint32_t item = 0; item < 5; ++item) ASSERT_TRUE(deliver(reads[0].call, item, {0, kLayers}));
  ASSERT_TRUE(deliver(reads[1].call, 5, {0, 1}));
  EXPECT_FALSE(deliver(reads[1].call, 5, {0, 1})) << "twice";
  ASSERT_TRUE(deliver(reads[1].call, 5, {1, 1}));
  actions = fsm.take_actions();
  ASSERT_TRUE(result());
  EXPECT_TRUE(result()->state_valid);
}

}  // namespace
}  // namespace baton::transfer
