// Recurrent state over real memory and sockets: it arrives whole, or it is not valid.
#include "transfer/pull_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;

class PullStateTest : public ::testing::TestWithParam<TransportMode> {
 protected:
  static PullConnectorOptions engine(std::string id) {
    auto made = options(std::move(id));
    made.transport = GetParam();
    return made;
  }
  static std::span<std::byte> slot(transport::SharedArena& arena, int64_t index) {
    return arena.data().subspan(static_cast<size_t>(kLayout.slot_offset(index)),
                                static_cast<size_t>(kLayout.states.block_bytes()));
  }
  static wire::KvTransferParams offer(Pair& pair, int64_t tokens, std::optional<int32_t> state) {
    std::vector<BlockId> blocks;
    for (int64_t i = 0; i * kBlockSize < tokens; ++i) blocks.push_back(Pair::remote(i));
    return pair.producer->offer(
        {.request_id = "r", .blocks = blocks, .token_count = tokens, .last_token_id = 42, .state_slot = state});
  }
  static PullResult pull(Pair& pair, const wire::KvTransferParams& params, int64_t tokens) {
    auto wanted = pair.pull("r", params, tokens);
    wanted.state_slot = 1;
    pair.consumer->start(std::move(wanted));
    return pair.result();
  }
};

TEST_P(PullStateTest, ArrivesWithTheBlocks) {
  Pair pair(engine("p"), engine("d"));
  const auto untouched = std::vector<std::byte>(slot(pair.decode, 2).begin(), slot(pair.decode, 2).end());
  const auto result = pull(pair, offer(pair, 40, 3), 40);
  ASSERT_TRUE(result.outcome) << result.outcome.error().to_string();
  EXPECT_TRUE(result.state_valid);
  EXPECT_EQ(result.valid_tokens, 40);
  EXPECT_EQ(result.bytes, kGeometry.sealed_bytes(40) + 3 * 4 * 4096);
  EXPECT_TRUE(pair.arrived(40));
  EXPECT_TRUE(std::ranges::equal(slot(pair.prefill, 3), slot(pair.decode, 1)));
  EXPECT_TRUE(std::ranges::equal(untouched, slot(pair.decode, 2))) << "a neighbour was written";
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
}

TEST_P(PullStateTest, ASpoiltUnitIsNeverValid) {
  Pair pair(engine("p"), engine("d"));
  const auto params = offer(pair, 40, 3);
  pair.consumer->hold(params);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  rot(slot(pair.prefill, 3)[20'000]);  // sealed by now
  const auto result = pull(pair, params, 40);
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kDataLoss);
  EXPECT_FALSE(result.state_valid);
  EXPECT_EQ(result.valid_tokens, 40) << "the blocks are good";
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
}

TEST_P(PullStateTest, AnOfferWithoutStateIsRefusedBeforeAByteMoves) {
  Pair pair(engine("p"), engine("d"));
  const auto result = pull(pair, offer(pair, 40, std::nullopt), 40);
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kMismatch);
  EXPECT_EQ(result.bytes, 0);
  EXPECT_EQ(result.valid_tokens, 0);
}

TEST_P(PullStateTest, AStatelessPullOfTheSameOfferIsServed) {
  Pair pair(engine("p"), engine("d"));
  pair.consumer->start(pair.pull("r", offer(pair, 40, 3), 40));
  const auto result = pair.result();
  ASSERT_TRUE(result.outcome) << result.outcome.error().to_string();
  EXPECT_FALSE(result.state_valid);
}

TEST_P(PullStateTest, AnotherStateGeometryIsRefusedByName) {
  auto other = engine("d");
  auto layout = kLayout;
  auto states = layout.states.entries();
  states[1].token_bytes = 8192;
  layout.states = {1, states};
  other.ranks = {whole_cache(layout)};
  auto arena = *create_kv_arena(other.ranks);
  Pair pair(engine("p"), engine("unused"));
  auto consumer = *make_kv_consumer(other, arena.data());
  auto wanted = pair.pull("r", offer(pair, 40, 3), 40);
  wanted.state_slot = 1;
  consumer->start(std::move(wanted));
  const auto results = wait_for([&] { return consumer->poll_completed(); });
  ASSERT_EQ(results.size(), 1u);
  ASSERT_FALSE(results[0].outcome);
  EXPECT_NE(results[0].outcome.error().message().find("bytes per token of state entry 1"), std::string::npos)
      << results[0].outcome.error().message();
}

INSTANTIATE_TEST_SUITE_P(Paths, PullStateTest, ::testing::Values(TransportMode::kShm, TransportMode::kTcp),
                         [](const auto& param) { return param.param == TransportMode::kShm ? "Shm" : "Tcp"; });

}  // namespace
}  // namespace baton::transfer
