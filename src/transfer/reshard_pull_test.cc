// Pulls between unequal grids over real memory and sockets: P in one process or in several, D with its own ranks.
#include <gmock/gmock.h>

#include <numeric>

#include "transfer/pull_test_support.h"
#include "transfer/reshard_plan.h"
#include "transfer/reshard_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr uint64_t kPrompt = 7;

PullConnectorOptions grid_options(std::string id, const GridShape& grid, int processes = 1) {
  PullConnectorOptions o;
  o.identity.engine_id = std::move(id);
  o.identity.model_fingerprint = "m";
  o.context_size = grid.context_size();
  o.grid = {.pp = grid.pp, .pcp = grid.pcp, .tp = grid.tp, .dcp = grid.dcp, .processes = processes};
  return o;
}

// A process of P: its stages' ranks, their memory with the prompt in it, and their producer.
struct Process {
  Holdings holdings;
  transport::SharedArena arena;
  std::unique_ptr<KvProducer> producer;

  Process(Holdings h, PullConnectorOptions o) : holdings(std::move(h)), arena(*create_kv_arena(holdings.ranks)) {
    fill(arena.data(), 99);
    o.ranks = holdings.ranks;
    auto made = make_kv_producer(std::move(o), arena);
    EXPECT_TRUE(made) << made.error().to_string();
    producer = std::move(*made);
  }
};

struct Fleet {
  ModelShape model;
  GridShape p, d;
  int64_t tokens;
  bool stateful;
  std::vector<Process> processes;
  Holdings to;
  transport::SharedArena decode;
  std::vector<int32_t> from_blocks, to_blocks;
  std::unique_ptr<KvConsumer> consumer;

  static Holdings holdings(const ModelShape& model, const GridShape& grid, int64_t tokens, bool stateful, int first = 0,
                           int end = -1) {
    const int64_t block = int64_t{grid.block} * grid.context_size();
    return *make_holdings(ranks_of(model, grid, (tokens + block - 1) / block + 2, stateful ? 3 : 0, first, end),
                          grid.context_size());
  }

  Fleet(ModelShape m, GridShape p_grid, GridShape d_grid, int64_t token_count, int process_count, TransportMode mode,
        PullConnectorOptions d_extra = {})
      : model(std::move(m)),
        p(p_grid),
        d(d_grid),
        tokens(token_count),
        stateful(std::find(model.stateful.begin(), model.stateful.end(), true) != model.stateful.end()),
        to(holdings(model, d, tokens, stateful)),
        decode(*create_kv_arena(to.ranks)) {
    for (int i = 0; i < process_count; ++i) {
      auto o = grid_options("p", p, process_count);
      o.transport = mode == TransportMode::kTcp ? mode : TransportMode::kAuto;
      processes.emplace_back(
          holdings(model, p, tokens, stateful, p.pp * i / process_count, p.pp * (i + 1) / process_count), std::move(o));
    }
    from_blocks.resize(static_cast<size_t>(processes[0].holdings.block_count));
    to_blocks.resize(static_cast<size_t>(to.block_count));
    std::iota(from_blocks.rbegin(), from_blocks.rend(), 0);
    std::iota(to_blocks.begin(), to_blocks.end(), 0);
    std::rotate(to_blocks.begin(), to_blocks.begin() + 1, to_blocks.end());
    for (auto& process : processes) {
      write_prompt(process.holdings, process.arena.data().data(), from_blocks, kPrompt, tokens);
      if (stateful) write_state(process.holdings, process.arena.data().data(), 2, kPrompt);
    }
    tell_members();
    auto o = grid_options("d", d);
    o.transport = mode;
    o.ranks = to.ranks;
    o.peer_claim = d_extra.peer_claim;
    consumer = std::move(*make_kv_consumer(std::move(o), decode.data()));
  }

  void tell_members() {
    std::vector<wire::HandoffAddress> members;
    for (size_t i = 1; i < processes.size(); ++i) members.push_back(processes[i].producer->address());
    processes[0].producer->set_members(members);
  }

  static std::vector<BlockId> ids(const std::vector<int32_t>& blocks, int64_t count) {
    std::vector<BlockId> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(BlockId(blocks[static_cast<size_t>(i)]));
    return list;
  }
  Offer made_offer() const {
    Offer offer{.request_id = "r", .token_count = tokens, .last_token_id = 1};
    offer.blocks = ids(from_blocks, processes[0].holdings.blocks_for(tokens));
    if (stateful) offer.state_slot = 2;
    return offer;
  }
  wire::KvTransferParams offer(size_t process_count = 100) {
    const auto params = processes[0].producer->offer(made_offer());
    for (size_t i = 1; i < std::min(process_count, processes.size()); ++i) hear(i, params);
    return params;
  }
  void hear(size_t process, const wire::KvTransferParams& params) {
    auto offer = made_offer();
    offer.offer_id = params.baton_offer_id;
    EXPECT_EQ(processes[process].producer->offer(offer).baton_offer_id, params.baton_offer_id);
  }
  Pull pull(const wire::KvTransferParams& params, int64_t skip = 0) const {
    Pull pull{.request_id = "r", .params = params, .token_count = tokens, .skip_tokens = skip};
    pull.blocks = ids(to_blocks, to.blocks_for(tokens));
    if (stateful) pull.state_slot = 1;
    return pull;
  }
  PullResult result() {
    auto results = wait_for([&] { return consumer->poll_completed(); });
    EXPECT_EQ(results.size(), 1u);
    return results.empty() ? PullResult{.outcome = fail(Code::kInternal, "no result")} : results[0];
  }
  // Every process has let go of the request.
  void expect_released() {
    for (auto& process : processes) {
      if (process.producer == nullptr) continue;
      EXPECT_EQ(wait_for([&] { return process.producer->poll_released(); }), std::vector<std::string>{"r"});
    }
  }
  int64_t wrong(int64_t begin, int64_t end) {
    return wrong_bytes(to, decode.data().data(), to_blocks, kPrompt, begin, end);
  }
};

class ReshardPullTest : public ::testing::TestWithParam<TransportMode> {};

TEST_P(ReshardPullTest, RandomGridsGiveTheBytesThatADirectCopyGives) {
  std::mt19937_64 random(21);
  for (int run = 0; run < 12 && !HasFailure(); ++run) {
    const auto model = random_model(random);
    const int blocks[] = {16, 32, 128, 256};
    const int a = blocks[random() % 4], b = random() % 2 == 0 ? a : 16;
    const auto p = random_grid(random, model, run % 2 == 0 ? a : b),
               d = random_grid(random, model, run % 2 == 0 ? b : a);
    const int64_t tokens = 1 + static_cast<int64_t>(random() % (3 * std::max(a, b)));
    const int processes = 1 + static_cast<int>(random() % static_cast<uint64_t>(std::min(p.pp, 3)));
    SCOPED_TRACE(fmt::format("run {}: pp{} pcp{} tp{} dcp{} block {} in {} processes -> pp{} pcp{} tp{} dcp{} block {}",
                             run, p.pp, p.pcp, p.tp, p.dcp, p.block, processes, d.pp, d.pcp, d.tp, d.dcp, d.block));
    Fleet fleet(model, p, d, tokens, processes, GetParam());
    const std::vector<std::byte> before(fleet.decode.data().begin(), fleet.decode.data().end());
    const int64_t skip =
        static_cast<int64_t>(random() % 2) * (tokens / fleet.to.block_tokens()) * fleet.to.block_tokens();
    fleet.consumer->start(fleet.pull(fleet.offer(), skip));
    const auto result = fleet.result();
    ASSERT_TRUE(result.outcome) << result.outcome.error().to_string();
    EXPECT_EQ(result.valid_tokens, tokens);
    EXPECT_EQ(result.state_valid, fleet.stateful);
    std::vector<std::byte> expected = before;
    for_each_byte(fleet.to, expected.data(), fleet.to_blocks, kPrompt, skip, tokens,
                  [](std::byte& at, std::byte is, int64_t) { at = is; });
    if (fleet.stateful) write_state(fleet.to, expected.data(), 1, kPrompt);
    EXPECT_TRUE(std::ranges::equal(expected, fleet.decode.data()));
    fleet.expect_released();
  }
}

ModelShape plain_model() {
  return {.layers = std::vector(4, std::vector<kv::CacheEntry>{{.kind = "latent", .dtype = "i8", .token_bytes = 7}}),
          .stateful = {false, true, true, false}};
}

TEST_P(ReshardPullTest, ASpoiltUnitLeavesTheLongestGoodBeginning) {
  // P: 32 tokens in turn on two context ranks of two stages; D: four context ranks.
  Fleet fleet(plain_model(), {.pp = 2, .pcp = 2, .tp = 1, .block = 32}, {.tp = 4, .dcp = 4, .block = 16}, 300, 2,
              GetParam());
  const auto params = fleet.offer();
  fleet.consumer->hold(params);
  std::this_thread::sleep_for(milliseconds(150));  // sealed
  // Of the second process: positions 160 to 191 of a layer.
  auto& process = fleet.processes[1];
  const auto& rank = process.holdings.rank(1);
  ASSERT_EQ(rank.context_rank, 1);
  rot(process.arena.data()[static_cast<size_t>(process.holdings.offset(1, fleet.from_blocks[2], false) +
                                               rank.layout.blocks.unit_offset(1, 0, 0) + 5)]);
  fleet.consumer->start(fleet.pull(params));
  const auto result = fleet.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kDataLoss);
  EXPECT_THAT(result.outcome.error().message(), ::testing::HasSubstr("pp1 pcp1 tp0"));
  EXPECT_LE(result.valid_tokens, 160);
  EXPECT_FALSE(result.state_valid);
  EXPECT_EQ(fleet.wrong(0, result.valid_tokens), 0);
  fleet.expect_released();
}

TEST_P(ReshardPullTest, AProcessThatHearsOfTheOfferLateIsWaitedFor) {
  Fleet fleet(plain_model(), {.pp = 2, .block = 16}, {.tp = 2, .block = 16}, 100, 2, GetParam());
  const auto params = fleet.offer(1);
  fleet.consumer->start(fleet.pull(params));
  std::this_thread::sleep_for(milliseconds(400));
  fleet.hear(1, params);
  const auto result = fleet.result();
  EXPECT_TRUE(result.outcome) << result.outcome.error().to_string();
  EXPECT_EQ(fleet.wrong(0, 100), 0);
  fleet.expect_released();
}

TEST_P(ReshardPullTest, AProcessThatHasGoneCostsSecondsAndNothingIsValid) {
  Fleet fleet(plain_model(), {.pp = 4, .block = 16}, {.tp = 2, .block = 16}, 100, 4, GetParam());
  const auto params = fleet.offer();
  fleet.processes[2].producer.reset();
  fleet.consumer->start(fleet.pull(params));
  const auto result = fleet.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kUnavailable);
  EXPECT_EQ(result.valid_tokens, 0);
  EXPECT_LT(result.seconds, 5);
  fleet.expect_released();
}

TEST_P(ReshardPullTest, DecliningFreesEveryProcessAlsoOneThatHearsOfItLater) {
  Fleet fleet(plain_model(), {.pp = 4, .block = 16}, {.tp = 2, .block = 16}, 100, 3, GetParam());
  const auto params = fleet.offer(2);
  fleet.consumer->decline(params);
  EXPECT_EQ(wait_for([&] { return fleet.processes[1].producer->poll_released(); }), std::vector<std::string>{"r"});
  EXPECT_EQ(wait_for([&] { return fleet.processes[0].producer->poll_released(); }), std::vector<std::string>{"r"});
  std::this_thread::sleep_for(milliseconds(200));
  fleet.hear(2, params);
  EXPECT_EQ(wait_for([&] { return fleet.processes[2].producer->poll_released(); }), std::vector<std::string>{"r"});
}

TEST_P(ReshardPullTest, HoldingKeepsTheLeaseInEveryProcess) {
  Fleet fleet(plain_model(), {.pp = 2, .block = 16}, {.tp = 2, .block = 16}, 100, 2, GetParam());
  const auto params = fleet.offer();
  fleet.consumer->hold(params);
  std::this_thread::sleep_for(milliseconds(300));
  fleet.consumer->start(fleet.pull(params));
  EXPECT_TRUE(fleet.result().outcome);
  fleet.expect_released();
}

INSTANTIATE_TEST_SUITE_P(Paths, ReshardPullTest, ::testing::Values(TransportMode::kShm, TransportMode::kTcp),
                         [](const auto& param) { return param.param == TransportMode::kShm ? "Shm" : "Tcp"; });

TEST(ReshardPull, AWrongClaimAboutTheOthersGridIsRefusedWithBothValues) {
  PullConnectorOptions extra;
  extra.peer_claim = {.tp = 8};
  Fleet fleet(plain_model(), {.tp = 4, .block = 16}, {.tp = 2, .block = 16}, 20, 1, TransportMode::kAuto, extra);
  fleet.consumer->start(fleet.pull(fleet.offer()));
  const auto result = fleet.result();
  EXPECT_EQ(result.outcome.error().code(), Code::kMismatch);
  EXPECT_THAT(result.outcome.error().message(),
              ::testing::HasSubstr("tp_size: kv_connector_extra_config says 8 of the prefill engine, it has 4"));
}

TEST(ReshardPull, LayersThatNoProcessHoldsAreNamed) {
  Fleet fleet(plain_model(), {.pp = 4, .block = 16}, {.tp = 2, .block = 16}, 20, 2, TransportMode::kAuto);
  // The first two stages twice, the last two nowhere.
  auto o = grid_options("p", fleet.p, 2);
  Process twin(Fleet::holdings(fleet.model, fleet.p, 20, true, 0, 2), std::move(o));
  fleet.processes[0].producer->set_members({twin.producer->address()});
  const auto params = fleet.offer(1);
  auto offer = fleet.made_offer();
  offer.offer_id = params.baton_offer_id;
  write_prompt(twin.holdings, twin.arena.data().data(), fleet.from_blocks, kPrompt, 20);
  twin.producer->offer(offer);
  fleet.consumer->start(fleet.pull(params));
  const auto result = fleet.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.valid_tokens, 0);
  EXPECT_THAT(result.outcome.error().message(), ::testing::HasSubstr("head 0 of cache entry 2"));
}

TEST(ReshardPull, AnEngineWhoseProcessesArentKnownYetIsNotPulledFrom) {
  Fleet fleet(plain_model(), {.pp = 2, .block = 16}, {.tp = 2, .block = 16}, 20, 2, TransportMode::kAuto);
  fleet.processes[0].producer->set_members({});
  fleet.consumer->start(fleet.pull(fleet.offer()));
  const auto result = fleet.result();
  EXPECT_EQ(result.outcome.error().code(), Code::kUnavailable);
  EXPECT_THAT(result.outcome.error().message(), ::testing::HasSubstr("has 2 processes and knows 1 yet"));
}

TEST(ReshardPull, ADecodeEngineOverSeveralProcessesIsRefused) {
  const auto model = plain_model();
  const GridShape grid{.pp = 2, .block = 16};
  auto o = grid_options("d", grid, 2);
  o.ranks = ranks_of(model, grid, 4, 1, 0, 1);
  auto arena = *create_kv_arena(o.ranks);
  const auto made = make_kv_consumer(o, arena.data());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kUnimplemented);
  o.grid.processes = 1;
  auto holed = o.ranks;
  holed[0].entry_parts[0].total_units = 2;
  o.ranks = holed;
  const auto half = make_kv_consumer(o, arena.data());
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace baton::transfer
