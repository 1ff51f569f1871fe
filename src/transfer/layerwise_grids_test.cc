// Pushes between unequal grids: the frames beside a mapping byte by byte, and both ends over real sockets, P in one
// process or in several.
#include <gmock/gmock.h>

#include <numeric>

#include "transfer/layerwise_connector.h"
#include "transfer/layerwise_grant.h"
#include "transfer/pull_test_support.h"
#include "transfer/push_frames.h"
#include "transfer/push_steps.h"
#include "transfer/reshard_test_support.h"
#include "transport/shm/shm_mover.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr uint64_t kPrompt = 7;

std::shared_ptr<const Holdings> holdings_of_grid(const ModelShape& model, const GridShape& grid, int64_t tokens,
                                                 int first = 0, int end = -1) {
  const int64_t block = int64_t{grid.block} * grid.context_size();
  const bool stateful = std::ranges::find(model.stateful, true) != model.stateful.end();
  return std::make_shared<const Holdings>(*make_holdings(
      ranks_of(model, grid, (tokens + block - 1) / block + 2, stateful ? 3 : 0, first, end), grid.context_size()));
}

std::vector<int32_t> shuffled(int64_t count, std::mt19937_64& random) {
  std::vector<int32_t> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), 0);
  std::ranges::shuffle(list, random);
  return list;
}

std::vector<BlockId> ids(const std::vector<int32_t>& blocks, int64_t begin, int64_t end) {
  std::vector<BlockId> list;
  for (int64_t i = begin; i < end; ++i) list.push_back(BlockId(blocks[static_cast<size_t>(i)]));
  return list;
}

// A drawn pair of grids, P's processes, and a prompt.
struct Drawn {
  ModelShape model;
  GridShape p, d;
  int processes = 1;
  int64_t tokens = 1, skip = 0;
  bool stateful = false;

  static Drawn draw(std::mt19937_64& random, int run) {
    Drawn drawn{.model = random_model(random), .p = {}, .d = {}};
    const int blocks[] = {16, 32, 128, 256};
    const int a = blocks[random() % 4], b = random() % 2 == 0 ? a : 16;
    drawn.p = random_grid(random, drawn.model, run % 2 == 0 ? a : b);
    drawn.d = random_grid(random, drawn.model, run % 2 == 0 ? b : a);
    drawn.tokens = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(3 * std::max(a, b)));
    drawn.processes = 1 + static_cast<int>(random() % static_cast<uint64_t>(std::min(drawn.p.pp, 3)));
    const int64_t block = int64_t{drawn.d.block} * drawn.d.context_size();
    drawn.skip = static_cast<int64_t>(random() % 2) * (drawn.tokens / block) * block;
    drawn.stateful = std::ranges::find(drawn.model.stateful, true) != drawn.model.stateful.end();
    return drawn;
  }
  std::string text() const {
    return fmt::format(
        "pp{} pcp{} tp{} dcp{} block {} in {} processes -> pp{} pcp{} tp{} dcp{} block {}, {} tokens, {} "
        "are there",
        p.pp, p.pcp, p.tp, p.dcp, p.block, processes, d.pp, d.pcp, d.tp, d.dcp, d.block, tokens, skip);
  }
  int first_stage(int process) const { return p.pp * process / processes; }
};

// ---- frames, without a wire

struct Frames {
  const Drawn& drawn;
  std::mt19937_64& random;
  std::shared_ptr<const Holdings> to = holdings_of_grid(drawn.model, drawn.d, drawn.tokens);
  std::vector<std::byte> target = std::vector<std::byte>(static_cast<size_t>(to->arenas.data_bytes()), std::byte{0xEE});
  std::vector<int32_t> to_blocks = shuffled(to->block_count, random);
  transport::ShmMover mover{};
  int64_t frames = 0;

  Pull pull() const {
    Pull made{.request_id = "r", .token_count = drawn.tokens, .skip_tokens = drawn.skip};
    made.blocks = ids(to_blocks, 0, to->blocks_for(drawn.tokens));
    if (drawn.stateful) made.state_slot = 1;
    return made;
  }

  void take(const ReshardPlan& plan, PushLeg& leg, std::vector<wire::PushData> list, const PushSource& source) {
    for (auto& frame : list) {
      std::vector<std::byte> payload;
      for (const auto piece : load_frame(plan.from(), source, frame)) {
        payload.insert(payload.end(), piece.begin(), piece.end());
      }
      PartMoves moves;
      const auto placed = leg.place(frame, std::ssize(payload), moves);
      ASSERT_TRUE(placed) << placed.error().to_string();
      const auto moved = mover.move(moves.moves, payload, target);
      ASSERT_TRUE(moved) << moved.error().to_string();
      for (const auto& repeat : moves.repeats) {
        std::memcpy(target.data() + repeat.to, target.data() + repeat.from, static_cast<size_t>(repeat.bytes));
      }
      leg.stored(frame);
      ++frames;
    }
  }

  // Steps of any length; in each the ranks get through their entries in any strides.
  void push(int process, Grant& grant, uint64_t connection) {
    const auto from = holdings_of_grid(drawn.model, drawn.p, drawn.tokens, drawn.first_stage(process),
                                       drawn.first_stage(process + 1));
    const auto blocks = shuffled(from->block_count, random);
    std::vector<std::byte> arena(static_cast<size_t>(from->arenas.data_bytes()), std::byte{0x55});
    write_prompt(*from, arena.data(), blocks, kPrompt, drawn.tokens);
    if (drawn.stateful) write_state(*from, arena.data(), 2, kPrompt);
    const auto plan = std::make_shared<const ReshardPlan>(from, to, static_cast<uint32_t>(random() % 16));
    const auto opened =
        grant.open(connection, {.grant_id = 0, .push_id = 1, .token_count = drawn.tokens, .has_state = true},
                   {.process = static_cast<uint64_t>(process), .process_count = drawn.processes}, plan);
    ASSERT_TRUE(opened) << opened.error().to_string();
    PushLeg& leg = *grant.leg(connection);
    const int64_t block = from->block_tokens();
    for (int64_t begin = 0; begin < drawn.tokens;) {
      const int64_t end = std::min<int64_t>(
          drawn.tokens, begin + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(drawn.tokens)));
      const auto held = ids(blocks, begin / block, (end + block - 1) / block);
      for (int rank = 0; rank < from->rank_count(); ++rank) {
        const int entries = from->geometry(rank, false).entry_count();
        for (int ready = 0; ready < entries;) {
          const int count = 1 + static_cast<int>(random() % static_cast<uint64_t>(entries - ready));
          take(*plan, leg,
               push_frames(
                   *plan, rank, {ready, count},
                   {.begin_token = begin, .end_token = end, .token_count = drawn.tokens, .skip_tokens = drawn.skip}),
               {.arena = arena, .token_count = drawn.tokens, .first_place = begin / block, .blocks = held});
          ready += count;
        }
      }
      // What is said to be here is here.
      if (drawn.processes == 1 && random() % 2 == 0) {
        EXPECT_EQ(wrong_bytes(*to, target.data(), to_blocks, kPrompt, drawn.skip, grant.valid_tokens()), 0);
      }
      begin = end;
    }
    for (int rank = 0; drawn.stateful && rank < from->rank_count(); ++rank) {
      take(*plan, leg, push_state_frames(*plan, rank), {.arena = arena, .token_count = 1, .blocks = {}, .slot = 2});
    }
    EXPECT_TRUE(leg.complete());
    grant.end(connection);
  }
};

TEST(PushFrames, RandomGridsAgreeWithAMappingByteByByte) {
  std::mt19937_64 random(31);
  for (int run = 0; run < 120 && !HasFailure(); ++run) {
    const auto drawn = Drawn::draw(random, run);
    SCOPED_TRACE(fmt::format("run {}: {}", run, drawn.text()));
    Frames frames{.drawn = drawn, .random = random};
    Grant grant(frames.pull());
    for (int process = drawn.processes; process-- > 0;) {
      EXPECT_FALSE(grant.finished());
      if (drawn.skip < drawn.tokens) EXPECT_EQ(grant.valid_tokens(), drawn.skip) << "a process is missing";
      frames.push(process, grant, static_cast<uint64_t>(10 + process));
    }
    ASSERT_TRUE(grant.finished());
    EXPECT_TRUE(grant.outcome());
    EXPECT_EQ(grant.valid_tokens(), drawn.tokens);
    EXPECT_EQ(grant.state_valid(), drawn.stateful);
    std::vector<std::byte> expected(frames.target.size(), std::byte{0xEE});
    for_each_byte(*frames.to, expected.data(), frames.to_blocks, kPrompt, drawn.skip, drawn.tokens,
                  [](std::byte& at, std::byte is, int64_t) { at = is; });
    if (drawn.stateful) write_state(*frames.to, expected.data(), 1, kPrompt);
    ASSERT_TRUE(frames.target == expected) << frames.frames << " frames";
  }
}

TEST(PushFrames, AreFewAndAReplicaIsSentOnce) {
  // DeepSeek's latents, tp8 to tp1: 512 tokens of a layer are one frame, from one of the eight ranks.
  const ModelShape model{
      .layers = std::vector(61, std::vector<kv::CacheEntry>{{.kind = "latent", .dtype = "bf16", .token_bytes = 1152}}),
      .stateful = std::vector<bool>(61, false)};
  const auto from = holdings_of_grid(model, {.tp = 8, .block = 128}, 512),
             to = holdings_of_grid(model, {.block = 128}, 512);
  std::set<uint32_t> givers;
  for (uint32_t choice = 0; choice < 8; ++choice) {
    const ReshardPlan plan(from, to, choice);
    size_t frames = 0;
    for (int rank = 0; rank < 8; ++rank) {
      for (int layer = 0; layer < 61; ++layer) {
        for (const auto& frame : push_frames(plan, rank, {layer, 1}, {.end_token = 512, .token_count = 512})) {
          ++frames;
          givers.insert(frame.rank);
          EXPECT_EQ(frame.place_count, 4u);
        }
      }
      // Where sending lags behind, layers go together: 589824 bytes each, so that no two fit.
      EXPECT_EQ(push_frames(plan, rank, {0, 61}, {.end_token = 512, .token_count = 512}).size(),
                rank == static_cast<int>(choice) ? 61u : 0u);
    }
    EXPECT_EQ(frames, 61u);
  }
  EXPECT_EQ(givers.size(), 8u);
  const ReshardPlan plan(from, to, 0);
  EXPECT_EQ(push_frames(plan, 0, {0, 61}, {.end_token = 128, .token_count = 512}).size(), 9u) << "seven layers a frame";
}

TEST(PushSteps, EachRankIsAsFarAsItSaysAndAStepIsLetGoOfOnce) {
  std::vector<std::string> released;
  PushSteps steps({2, 1, 0});
  for (const uint64_t step : {4, 5}) {
    for (const char* ticket : {"a", "b"}) {
      steps.plan(
          std::make_shared<const PlannedPush>(PushStep{.step = step, .ticket = fmt::format("{}{}", ticket, step)},
                                              [&](const std::string& name) { released.push_back(name); }));
    }
  }
  std::vector<PlannedRef> done;
  EXPECT_TRUE(steps.ready(0, 3, 1, done).empty()) << "nothing of that step is pushed";
  auto jobs = steps.ready(0, 4, 1, done);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[1].rank, 0);
  EXPECT_EQ(jobs[1].planned->step().ticket, "b4");
  EXPECT_EQ(jobs[1].entries.count, 1);
  EXPECT_EQ(steps.ready(1, 5, 1, done).size(), 2u) << "a rank may be in the next step already";
  jobs = steps.ready(0, 4, 2, done);
  EXPECT_EQ(jobs[0].entries.first, 1);
  jobs.clear();
  EXPECT_TRUE(steps.ready(0, 4, 2, done).empty());
  EXPECT_EQ(steps.ready(1, 4, 1, done).size(), 2u);
  EXPECT_TRUE(done.empty());
  EXPECT_TRUE(steps.ready(2, 4, 0, done).empty());
  EXPECT_EQ(done.size(), 2u);
  EXPECT_TRUE(released.empty());
  done.clear();
  EXPECT_EQ(released, (std::vector<std::string>{"a4", "b4"}));
}

// ---- both ends over sockets

PullConnectorOptions grid_options(std::string id, const Holdings& holdings, const GridShape& grid, int processes) {
  PullConnectorOptions o;
  o.identity.engine_id = std::move(id);
  o.identity.model_fingerprint = "m";
  o.ranks = holdings.ranks;
  o.context_size = grid.context_size();
  o.grid = {.pp = grid.pp, .pcp = grid.pcp, .tp = grid.tp, .dcp = grid.dcp, .processes = processes};
  return o;
}

struct Process {
  std::shared_ptr<const Holdings> holdings;
  transport::SharedArena arena;
  std::unique_ptr<KvProducer> producer;
};

struct Fleet {
  Drawn drawn;
  std::vector<Process> processes;
  std::shared_ptr<const Holdings> to;
  transport::SharedArena decode;
  std::vector<int32_t> from_blocks, to_blocks;
  std::mutex mutex;
  std::vector<std::pair<nlohmann::json, std::function<void(Result<void>)>>> calls;
  std::unique_ptr<KvConsumer> consumer;
  size_t tickets = 0;  // of each process

  explicit Fleet(Drawn of, wire::GridClaim claim = {})
      : drawn(std::move(of)),
        to(holdings_of_grid(drawn.model, drawn.d, drawn.tokens)),
        decode(*create_kv_arena(to->ranks)) {
    for (int i = 0; i < drawn.processes; ++i) {
      auto holdings =
          holdings_of_grid(drawn.model, drawn.p, drawn.tokens, drawn.first_stage(i), drawn.first_stage(i + 1));
      auto arena = *create_kv_arena(holdings->ranks);
      fill(arena.data(), 99);
      processes.push_back({std::move(holdings), std::move(arena), nullptr});
    }
    from_blocks.resize(static_cast<size_t>(processes[0].holdings->block_count));
    to_blocks.resize(static_cast<size_t>(to->block_count));
    std::iota(from_blocks.rbegin(), from_blocks.rend(), 0);
    std::iota(to_blocks.begin(), to_blocks.end(), 0);
    std::rotate(to_blocks.begin(), to_blocks.begin() + 1, to_blocks.end());
    for (auto& process : processes) {
      write_prompt(*process.holdings, process.arena.data().data(), from_blocks, kPrompt, drawn.tokens);
      if (drawn.stateful) write_state(*process.holdings, process.arena.data().data(), 2, kPrompt);
      make_producer(process);
    }
    auto o = grid_options("d", *to, drawn.d, 1);
    o.peer_claim = claim;
    consumer =
        *make_layerwise_consumer(std::move(o), decode.data(),
                                 [this](std::string, nlohmann::json body, std::function<void(Result<void>)> done) {
                                   std::lock_guard lock(mutex);
                                   calls.emplace_back(std::move(body), std::move(done));
                                 },
                                 {.tail = milliseconds(400)});
  }
  ~Fleet() {
    consumer.reset();
    for (auto& process : processes) process.producer.reset();
  }

  void make_producer(Process& process) {
    process.producer =
        *make_layerwise_producer(grid_options("p", *process.holdings, drawn.p, drawn.processes), process.arena.data());
  }
  wire::KvTransferParams start() {
    Pull pull{.request_id = "r-0", .token_count = drawn.tokens, .skip_tokens = drawn.skip};
    pull.params.metaserver = "http://proxy/v1/metaserver?key=k";
    pull.blocks = ids(to_blocks, 0, to->blocks_for(drawn.tokens));
    if (drawn.stateful) pull.state_slot = 1;
    consumer->start(std::move(pull));
    const auto bodies = wait_for([&] {
      std::lock_guard lock(mutex);
      std::vector<nlohmann::json> seen;
      if (!calls.empty()) seen.push_back(calls.back().first);
      return seen;
    });
    EXPECT_EQ(bodies.size(), 1u);
    EXPECT_EQ(bodies.at(0)["remote_tp_size"], drawn.d.tp);
    return *wire::KvTransferParams::from_json(bodies.at(0));
  }
  void answer(Result<void> with) {
    std::lock_guard lock(mutex);
    calls.back().second(std::move(with));
  }
  // Steps [begin, end) of `chunk` tokens; all ranks of a process on threads of their own.
  void compute(size_t index, const wire::KvTransferParams& params, int64_t begin, int64_t end, int64_t chunk,
               uint64_t push_id = 5) {
    auto& process = processes[index];
    const int64_t block = process.holdings->block_tokens();
    for (; begin < end; begin += chunk) {
      const int64_t until = std::min(end, begin + chunk);
      const uint64_t number = static_cast<uint64_t>(begin) + 1;
      process.producer->plan_push({.step = number,
                                   .request_id = "r-0",
                                   .push_id = push_id,
                                   .host = params.remote_host,
                                   .port = params.remote_port,
                                   .grant_id = params.baton_offer_id,
                                   .token_count = drawn.tokens,
                                   .has_state = drawn.stateful,
                                   .begin_token = begin,
                                   .end_token = until,
                                   .blocks = ids(from_blocks, begin / block, (until + block - 1) / block),
                                   .ticket = fmt::format("t{}", begin)});
      std::vector<std::thread> ranks;
      for (int r = 0; r < process.holdings->rank_count(); ++r) {
        ranks.emplace_back([&process, r, number] {
          const int entries = process.holdings->geometry(r, false).entry_count();
          for (int e = 1; e <= entries; ++e) process.producer->entries_ready(r, number, e);
          process.producer->entries_ready(r, number, entries);
        });
      }
      for (auto& rank : ranks) rank.join();
    }
  }
  void offer(size_t index) {
    Offer offer{.request_id = "r-0", .blocks = {}, .token_count = drawn.tokens, .last_token_id = 42};
    if (drawn.stateful) offer.state_slot = 2;
    processes[index].producer->offer(std::move(offer));
  }
  PullResult result() {
    auto results = wait_for([&] { return consumer->poll_completed(); });
    EXPECT_EQ(results.size(), 1u);
    return results.empty() ? PullResult{.outcome = fail(Code::kInternal, "no result")} : results[0];
  }
  // Tickets and the offer come back, each once.
  void expect_released(size_t index, size_t count) {
    std::multiset<std::string> names;
    wait_for([&] {
      for (auto& name : processes[index].producer->poll_released()) names.insert(name);
      return names.size() >= count ? std::vector<int>{1} : std::vector<int>{};
    });
    EXPECT_EQ(names.size(), count);
    EXPECT_EQ(names.count("r-0"), 1u);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), count);
  }
  int64_t wrong(int64_t begin, int64_t end) {
    return wrong_bytes(*to, decode.data().data(), to_blocks, kPrompt, begin, end);
  }
};

TEST(LayerwiseGrids, RandomGridsGiveTheBytesThatADirectCopyGives) {
  std::mt19937_64 random(41);
  for (int run = 0; run < 16 && !HasFailure(); ++run) {
    auto drawn = Drawn::draw(random, run);
    if (drawn.skip >= drawn.tokens && !drawn.stateful) drawn.skip = 0;
    SCOPED_TRACE(fmt::format("run {}: {}", run, drawn.text()));
    Fleet fleet(drawn);
    const std::vector<std::byte> before(fleet.decode.data().begin(), fleet.decode.data().end());
    const auto params = fleet.start();
    const int64_t chunk = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(drawn.tokens));
    // A later stage may begin before the first has ended, and the other way round.
    for (size_t i = fleet.processes.size(); i-- > 0;) fleet.compute(i, params, 0, drawn.tokens, chunk);
    for (size_t i = 0; i < fleet.processes.size(); ++i) fleet.offer(i);
    const auto got = fleet.result();
    ASSERT_TRUE(got.outcome) << got.outcome.error().to_string();
    EXPECT_EQ(got.valid_tokens, drawn.tokens);
    EXPECT_EQ(got.state_valid, drawn.stateful);
    EXPECT_EQ(got.last_token, 42);
    std::vector<std::byte> expected = before;
    for_each_byte(*fleet.to, expected.data(), fleet.to_blocks, kPrompt, drawn.skip, drawn.tokens,
                  [](std::byte& at, std::byte is, int64_t) { at = is; });
    if (drawn.stateful) write_state(*fleet.to, expected.data(), 1, kPrompt);
    EXPECT_TRUE(std::ranges::equal(expected, fleet.decode.data()));
    const auto steps = static_cast<size_t>((drawn.tokens + chunk - 1) / chunk);
    for (size_t i = 0; i < fleet.processes.size(); ++i) fleet.expect_released(i, steps + 1);
    fleet.answer({});
  }
}

// Two stages, a process each, of two context ranks; D has four.
Drawn two_processes() {
  return {.model = {.layers = std::vector(
                        4, std::vector<kv::CacheEntry>{{.kind = "latent", .dtype = "i8", .token_bytes = 7}}),
                    .stateful = {false, false, false, false}},
          .p = {.pp = 2, .pcp = 2, .block = 32},
          .d = {.tp = 4, .dcp = 4, .block = 16},
          .processes = 2,
          .tokens = 300};
}

TEST(LayerwiseGrids, AProcessThatDiesInMidPushCostsNoTimeAndNothingBadIsUsed) {
  Fleet fleet(two_processes());
  const auto params = fleet.start();
  fleet.compute(0, params, 0, 300, 100);
  fleet.compute(1, params, 0, 100, 100);
  std::this_thread::sleep_for(milliseconds(50));
  fleet.processes[1].producer.reset();
  fleet.answer(fail(Code::kUnavailable, "502"));
  const auto got = fleet.result();
  ASSERT_FALSE(got.outcome);
  EXPECT_LT(got.seconds, 5);
  EXPECT_LE(got.valid_tokens, 96);
  EXPECT_EQ(fleet.wrong(0, got.valid_tokens), 0);
  fleet.offer(0);
  fleet.expect_released(0, 4);
}

TEST(LayerwiseGrids, AnotherEngineTakesOverAndTheFirstOnesRestIsNotTaken) {
  Fleet fleet(two_processes());
  const auto params = fleet.start();
  fleet.compute(0, params, 0, 300, 100);
  fleet.compute(1, params, 0, 100, 100);
  std::this_thread::sleep_for(milliseconds(50));
  fleet.processes[1].producer.reset();
  // The same processes, as those of another engine.
  for (auto& process : fleet.processes) {
    process.producer.reset();
    fleet.make_producer(process);
  }
  for (size_t i = 0; i < 2; ++i) fleet.compute(i, params, 0, 300, 70, /*push_id=*/6);
  for (size_t i = 0; i < 2; ++i) fleet.offer(i);
  const auto got = fleet.result();
  ASSERT_TRUE(got.outcome) << got.outcome.error().to_string();
  EXPECT_EQ(fleet.wrong(0, 300), 0);
}

TEST(LayerwiseGrids, AProcessThatIsNeverHeardOfEndsTheWait) {
  Fleet fleet(two_processes());
  const auto params = fleet.start();
  fleet.compute(0, params, 0, 300, 300);
  fleet.offer(0);
  fleet.expect_released(0, 2);
  fleet.answer({});
  const auto got = fleet.result();
  ASSERT_FALSE(got.outcome);
  EXPECT_EQ(got.outcome.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(got.outcome.error().message(), ::testing::HasSubstr("1 of 2 processes"));
  EXPECT_EQ(got.valid_tokens, 0);
}

TEST(LayerwiseGrids, APushAfterACancelReachesNoBlock) {
  Fleet fleet(two_processes());
  const auto params = fleet.start();
  fleet.compute(0, params, 0, 100, 100);
  fleet.consumer->cancel("r-0");
  EXPECT_EQ(fleet.result().outcome.error().code(), Code::kCancelled);
  fill(fleet.decode.data(), 3);
  const std::vector<std::byte> before(fleet.decode.data().begin(), fleet.decode.data().end());
  fleet.compute(0, params, 100, 300, 100);
  fleet.compute(1, params, 0, 300, 100);
  for (size_t i = 0; i < 2; ++i) fleet.offer(i);
  for (size_t i = 0; i < 2; ++i) fleet.expect_released(i, 4);
  EXPECT_TRUE(std::ranges::equal(before, fleet.decode.data()));
}

TEST(LayerwiseGrids, AWrongClaimAboutTheOthersGridIsRefusedWithBothValues) {
  Fleet fleet(two_processes(), {.tp = 8});
  const auto params = fleet.start();
  fleet.compute(0, params, 0, 300, 300);
  fleet.offer(0);
  fleet.expect_released(0, 2);
  fleet.answer({});
  EXPECT_FALSE(fleet.result().outcome);
}

TEST(LayerwiseGrids, ADecodeEngineOverSeveralProcessesIsRefused) {
  const auto drawn = two_processes();
  const auto half = holdings_of_grid(drawn.model, drawn.p, 300, 0, 1);
  auto arena = *create_kv_arena(half->ranks);
  const auto made = make_layerwise_consumer(grid_options("d", *half, drawn.p, 2), arena.data(), {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace baton::transfer
