// An engine whose stages live in several processes, and replicas that step together: over the twin of the mesh, each
// "process" a thread. Tokens are those of one rank; a lost process ends every other one with its reason.
#include <gtest/gtest.h>

#include <thread>

#include "base/byte_codec.h"
#include "engine/ranks/lockstep.h"
#include "engine/ranks/member.h"
#include "engine/ranks/member_messages.h"
#include "engine/ranks/member_offers.h"
#include "engine/ranks/step_codec.h"
#include "engine/testing/harness.h"
#include "parallel/memory/memory_mesh.h"

namespace baton::engine::testing {
namespace {

FakeModelOptions small_model(bool state = false) {
  return {.layers = 6, .kv_heads = 4, .state_layers = state ? 6 : 0, .state_heads = 4};
}

RankSetOptions stages(parallel::GridSizes sizes, int begin, int end) {
  return {.sizes = sizes, .stages = {begin, end}, .layer_partition = {}, .spin_us = 0, .enter = {}};
}

std::unique_ptr<RankSet> ranks_of(const RankSetOptions& options, const FakeModelOptions& model) {
  auto loaded = RankSet::load(
      options, [&](const models::RankSetup& rank, ComputePool&) -> Result<std::unique_ptr<models::Model>> {
        return make_fake_model(model, rank);
      });
  EXPECT_TRUE(loaded.has_value());
  return *std::move(loaded);
}

std::vector<EngineRequest> requests() {
  std::vector<EngineRequest> all;
  for (const int length : {1, 5, 16, 33, 60}) {
    const auto i = all.size();
    auto request = make_request("r" + std::to_string(i), random_prompt(i, length));
    if (i % 2) {
      request.sampling.temperature = 1;
      request.sampling.seed = i;
    }
    if (i == 3) request.sampling.prompt_logprobs = 1;
    all.push_back(std::move(request));
  }
  return all;
}

std::vector<Gathered> alone(const FakeModelOptions& model) {
  Harness harness({.config = Harness::small_config(), .model = model});
  std::vector<Gathered> all;
  for (auto& request : requests()) all.push_back(harness.run(request));
  return all;
}

void expect_equal(const std::vector<Gathered>& got, const std::vector<Gathered>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(got[i].hashes, expected[i].hashes) << i;
  }
}

// Members 1 and up of an engine, each on a thread.
class Followers {
 public:
  Followers(parallel::GridSizes sizes, int processes, FakeModelOptions model, EngineConfig config)
      : meshes_(parallel::make_memory_meshes(processes)), ended_(static_cast<size_t>(processes)) {
    for (int member = 1; member < processes; ++member) {
      threads_.emplace_back([=, this] {
        const int each = sizes.pp / processes;
        ended_[static_cast<size_t>(member)] =
            run_member(config, ranks_of(stages(sizes, member * each, (member + 1) * each), model),
                       *meshes_[static_cast<size_t>(member)], make_twin_host());
      });
    }
  }
  ~Followers() { join(); }
  void join() {
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  parallel::MemoryMesh& mesh(int member) { return *meshes_[static_cast<size_t>(member)]; }
  const Result<void>& ended(int member) const { return ended_[static_cast<size_t>(member)]; }

 private:
  std::vector<std::unique_ptr<parallel::MemoryMesh>> meshes_;
  std::vector<Result<void>> ended_;
  std::vector<std::thread> threads_;
};

Harness::Options leader(parallel::GridSizes sizes, int processes, const FakeModelOptions& model, EngineConfig config,
                        Followers& followers) {
  return {.config = std::move(config),
          .model = model,
          .grid = stages(sizes, 0, sizes.pp / processes),
          .members = &followers.mesh(0)};
}

class MembersOfAGrid : public ::testing::TestWithParam<std::tuple<int, int, int, bool>> {};

TEST_P(MembersOfAGrid, GiveTheTokensOfOneRank) {
  const auto [processes, pp, tp, state] = GetParam();
  const parallel::GridSizes sizes{.pp = pp, .tp = tp};
  const auto model = small_model(state);
  auto config = Harness::small_config();
  config.test_preempt_probability = 0.1;
  config.max_num_batched_tokens = 20;
  const auto expected = alone(model);
  Followers followers(sizes, processes, model, config);
  {
    Harness harness(leader(sizes, processes, model, config, followers));
    expect_equal(harness.run_all(requests()), expected);
    expect_equal(harness.run_all(requests()), expected);
    EXPECT_TRUE(harness.all_free());
  }
  followers.join();
  for (int member = 1; member < processes; ++member) {
    EXPECT_TRUE(followers.ended(member).has_value()) << followers.ended(member).error().message();
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, MembersOfAGrid,
                         ::testing::Values(std::tuple{2, 2, 1, false}, std::tuple{2, 4, 2, true},
                                           std::tuple{3, 3, 1, false}, std::tuple{3, 6, 1, true}));

TEST(LostMember, EndsEveryOtherWithItsReason) {
  const parallel::GridSizes sizes{.pp = 3};
  const auto model = small_model();
  const auto config = Harness::small_config();
  for (const int lost : {1, 2}) {
    Followers followers(sizes, 3, model, config);
    Harness harness(leader(sizes, 3, model, config, followers));
    (void)harness.run(make_request("r", random_prompt(1, 10)));
    auto request = make_request("s", random_prompt(1, 10));
    request.sampling.max_tokens = 100;
    ASSERT_TRUE(harness.submit(request));
    harness.wait_first_token("s");
    followers.mesh(lost).die("killed by the test");
    const auto ended = harness.wait("s");
    EXPECT_EQ(ended.last.finish, FinishReason::kError);
    followers.join();
    EXPECT_FALSE(harness.engine().healthy());
    EXPECT_NE(harness.engine().health_reason().find("killed by the test"), std::string::npos)
        << harness.engine().health_reason();
    const int other = 3 - lost;
    ASSERT_FALSE(followers.ended(other).has_value());
    EXPECT_NE(followers.ended(other).error().message().find("killed by the test"), std::string::npos)
        << followers.ended(other).error().message();
  }
}

TEST(LostMember, IsNoticedWithoutARequest) {
  const parallel::GridSizes sizes{.pp = 2};
  const auto config = Harness::small_config();
  Followers followers(sizes, 2, small_model(), config);
  Harness harness(leader(sizes, 2, small_model(), config, followers));
  followers.mesh(1).die("killed by the test");
  for (int i = 0; i < 2000 && harness.engine().healthy(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(harness.engine().healthy());
}

TEST(LostMember, ARankThatDiesInAMemberIsNamedByTheLeader) {
  const parallel::GridSizes sizes{.pp = 2, .tp = 2};
  const auto config = Harness::small_config();
  auto model = small_model();
  model.throw_at_step = 2;
  model.throw_at_rank = 3;
  Followers followers(sizes, 2, model, config);
  Harness harness(leader(sizes, 2, model, config, followers));
  const auto ended = harness.run(make_request("r", random_prompt(1, 10)));
  EXPECT_EQ(ended.last.finish, FinishReason::kError);
  EXPECT_NE(harness.engine().health_reason().find("rank pp1 pcp0 tp1 has died"), std::string::npos)
      << harness.engine().health_reason();
}

TEST(Members, OfDifferentSettingsRefuseEachOther) {
  const parallel::GridSizes sizes{.pp = 2};
  auto config = Harness::small_config();
  Followers followers(sizes, 2, small_model(), config);
  config.max_num_seqs = 5;
  ComputePool pool({.threads = 1, .spin_us = 0});
  auto engine = make_engine(config, ranks_of(stages(sizes, 0, 1), small_model()),
                            {.pool = &pool, .make_kv_host = make_twin_host(), .members = &followers.mesh(0)});
  followers.join();
  ASSERT_FALSE(engine.has_value());
  // Whoever finds it first leaves, and the other hears of that.
  EXPECT_NE(engine.error().message().find("set up differently"), std::string::npos) << engine.error().message();
  EXPECT_NE(engine.error().message().find("--max-num-seqs 5"), std::string::npos) << engine.error().message();
  EXPECT_FALSE(followers.ended(1).has_value());
}

// Replicas: each an engine with a mesh of its own.
class Replicas {
 public:
  Replicas(int count, FakeModelOptions model, parallel::GridSizes sizes = {})
      : meshes_(parallel::make_memory_meshes(count)) {
    for (int i = 0; i < count; ++i) exchanges_.push_back(std::make_unique<MeshExchange>(*meshes_[i]));
    for (int i = 0; i < count; ++i) {
      sizes.dp = count;
      sizes.expert_parallel = true;
      auto grid = stages(sizes, 0, sizes.pp);
      grid.dp_rank = i;
      grid.replicas = exchanges_[i].get();
      if (i > 0) model.throw_at_step = -1;
      engines_.push_back(std::make_unique<Harness>(Harness::Options{
          .config = Harness::small_config(), .model = model, .grid = grid, .replicas = meshes_[i].get()}));
    }
  }
  Harness& operator[](int i) { return *engines_[static_cast<size_t>(i)]; }
  parallel::MemoryMesh& mesh(int i) { return *meshes_[static_cast<size_t>(i)]; }

 private:
  std::vector<std::unique_ptr<parallel::MemoryMesh>> meshes_;
  std::vector<std::unique_ptr<MeshExchange>> exchanges_;
  std::vector<std::unique_ptr<Harness>> engines_;
};

TEST(ReplicaGroupTest, StepTogetherAndGiveTheTokensOfOne) {
  const auto expected = alone(small_model());
  Replicas replicas(4, small_model(), {.tp = 2});
  for (int round = 0; round < 3; ++round) {
    // All at once; then only one has work.
    for (int i = 0; i < 4; ++i) {
      for (auto& request : requests()) ASSERT_TRUE(replicas[i].submit(request));
    }
    for (int i = 0; i < 4; ++i) {
      std::vector<Gathered> got;
      for (auto& request : requests()) got.push_back(replicas[i].wait(request.id));
      expect_equal(got, expected);
    }
    expect_equal(replicas[round].run_all(requests()), expected);
  }
}

TEST(ReplicaGroupTest, RestWithoutWork) {
  auto steps = std::make_shared<std::atomic<int64_t>>(0);
  auto model = small_model();
  model.steps = steps;
  Replicas replicas(3, model);
  for (int i = 0; i < 20; ++i) (void)replicas[i % 3].run(make_request("r", random_prompt(1, 4)));
  const auto before = steps->load();
  EXPECT_EQ(before, 20 * 8 * 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(steps->load(), before);
}

TEST(ReplicaGroupTest, ALostOneIsNamedByAllOthers) {
  for (const bool busy : {false, true}) {
    Replicas replicas(3, small_model());
    auto request = make_request("r", random_prompt(1, 4));
    request.sampling.max_tokens = 100;
    if (busy) {
      ASSERT_TRUE(replicas[0].submit(request));
      replicas[0].wait_first_token("r");
    }
    replicas.mesh(1).die("killed by the test");
    if (busy) (void)replicas[0].wait("r");
    for (const int other : {0, 2}) {
      for (int i = 0; i < 2000 && replicas[other].engine().healthy(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_NE(replicas[other].engine().health_reason().find("killed by the test"), std::string::npos)
          << replicas[other].engine().health_reason();
    }
  }
}

// A replica whose thread has ended takes part in no exchange: the others must hear of it then, not when it is
// destroyed.
TEST(ReplicaGroupTest, AStoppedOneHasLeftBeforeItIsDestroyed) {
  Replicas replicas(2, small_model());
  replicas[0].engine().drain(Duration(0));
  if (replicas[1].submit(make_request("r", random_prompt(1, 4)))) (void)replicas[1].wait("r");
  EXPECT_NE(replicas[1].engine().health_reason().find("has ended"), std::string::npos)
      << replicas[1].engine().health_reason();
}

// Whatever bytes come, a step is refused or keeps to its limits; a step that goes round is the same.
TEST(StepCodec, RefusesWhatLeavesTheCache) {
  const StepLimits limits{.max_rows = 8,
                          .max_logit_rows = 4,
                          .blocks = 10,
                          .slots = 3,
                          .block_tokens = 4,
                          .max_model_len = 40,
                          .vocab_size = 97};
  StepPlan plan;
  plan.sequences.push_back({.tokens = {5, 6, 7},
                            .first_position = 4,
                            .block_tables = {{BlockId(2), BlockId(9)}},
                            .state_slot = kv::StateSlot(1),
                            .state_copies = {{kv::StateSlot(0), kv::StateSlot(2)}},
                            .sample_rows = {2},
                            .prompt_rows = {0},
                            .prompt_targets = {6}});
  plan.sequences.push_back({.tokens = {96},
                            .first_position = 0,
                            .block_tables = {{BlockId(0)}},
                            .state_copies = {},
                            .sample_rows = {0},
                            .prompt_rows = {},
                            .prompt_targets = {}});
  RankStep step;
  step.reused_blocks = {BlockId(3)};
  step.reused_slots = {2};
  lay_out(plan, step);
  const auto bytes = encode_step(step);
  RankStep back;
  ASSERT_TRUE(decode_step(bytes, limits, back));
  EXPECT_EQ(encode_step(back), bytes);
  EXPECT_EQ(back.slices[0].block_table[1], 9);
  EXPECT_EQ(back.logit_rows, (std::vector<int32_t>{0, 2, 3}));
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0x01, 0x10, 0x80, 0xff}) {
      auto changed = bytes;
      changed[i] ^= static_cast<std::byte>(flip);
      RankStep read;
      if (!decode_step(changed, limits, read)) {
        ++refused;
        EXPECT_EQ(read.rows(), 0);
        continue;
      }
      for (const auto block : read.block_tables) ASSERT_TRUE(block >= 0 && block < limits.blocks);
      for (const auto& slice : read.slices) ASSERT_LT(slice.state_slot, limits.slots);
    }
    EXPECT_FALSE(decode_step(std::span(bytes).first(i), limits, back));
  }
  EXPECT_GT(refused, static_cast<int>(bytes.size()));
}

TEST(OfferCodec, GoesRound) {
  const transfer::Offer offer{.request_id = "a-1",
                              .blocks = {BlockId(3), BlockId(1)},
                              .token_count = 17,
                              .last_token_id = 5,
                              .prompt = {7, 8},
                              .state_slot = 2,
                              .offer_id = 99};
  const auto bytes = encode_offer(offer);
  const auto back = decode_offer(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->blocks, offer.blocks);
  EXPECT_EQ(back->prompt, offer.prompt);
  EXPECT_EQ(back->state_slot, offer.state_slot);
  EXPECT_EQ(encode_offer(*back), bytes);
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_FALSE(decode_offer(std::span(bytes).first(i)).has_value());
}

transfer::PushStep a_push() {
  return {.step = 4,
          .request_id = "a-1",
          .push_id = 6,
          .host = "10.0.0.2",
          .port = 30000,
          .grant_id = 8,
          .token_count = 40,
          .prompt = {7, 8},
          .has_state = true,
          .begin_token = 10,
          .end_token = 33,
          .blocks = {BlockId(3), BlockId(1), BlockId(2)},
          .ticket = "push 1"};
}

TEST(PushCodec, GoesRound) {
  const auto step = a_push();
  const auto bytes = encode_push(step);
  const auto back = decode_push(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->blocks, step.blocks);
  EXPECT_EQ(back->prompt, step.prompt);
  EXPECT_EQ(back->ticket, step.ticket);
  EXPECT_EQ(encode_push(*back), bytes);
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_FALSE(decode_push(std::span(bytes).first(i)).has_value());
}

// Keeps what it is told, and lets go of what the test says.
struct PushTwin final : transfer::KvProducer {
  std::vector<transfer::PushStep> planned;
  std::vector<std::string> released, revoked;
  bool pushes() const override { return true; }
  void plan_push(transfer::PushStep step) override { planned.push_back(std::move(step)); }
  wire::KvTransferParams offer(transfer::Offer) override { return {}; }
  std::vector<std::string> poll_released() override { return std::exchange(released, {}); }
  void revoke(const std::string& id) override { revoked.push_back(id); }
};

TEST(MemberPushes, BlocksAreFreeOnceEveryProcessHasSentThem) {
  const auto meshes = parallel::make_memory_meshes(2);
  PushTwin first, second;
  LeaderProducer leader(*meshes[0], first);
  MemberOffers member(*meshes[1], &second);
  const MemberOffers::Limits limits{.blocks = 9, .slots = 1, .block_tokens = 16, .max_model_len = 64};
  const auto told = [&] { return *meshes[1]->receive(0, tag(MemberTag::kControl), std::chrono::seconds(5)); };
  ASSERT_TRUE(leader.pushes());
  leader.plan_push(a_push());
  auto message = told();
  EXPECT_EQ(message.span()[0], static_cast<std::byte>(MemberCommand::kPush));
  ASSERT_TRUE(member.push(message.span().subspan(1), limits));
  ASSERT_EQ(first.planned.size(), 1u);
  ASSERT_EQ(second.planned.size(), 1u);
  EXPECT_EQ(second.planned[0].push_id, 6u);
  EXPECT_EQ(second.planned[0].blocks, first.planned[0].blocks);
  EXPECT_TRUE(member.pending());
  first.released = {"push 1"};
  EXPECT_TRUE(leader.poll_released().empty());
  second.released = {"push 1"};
  ASSERT_TRUE(member.report_released());
  EXPECT_FALSE(member.pending());
  EXPECT_EQ(leader.poll_released(), std::vector<std::string>{"push 1"});
  // It is given up before anything was offered.
  leader.revoke("a-1");
  message = told();
  ASSERT_TRUE(member.revoke(message.span().subspan(1)));
  EXPECT_EQ(second.revoked, std::vector<std::string>{"a-1"});
}

TEST(MemberPushes, WhatLeavesTheCacheIsRefused) {
  const auto meshes = parallel::make_memory_meshes(2);
  PushTwin producer;
  MemberOffers member(*meshes[1], &producer);
  const auto refused = [&](auto change) {
    auto step = a_push();
    change(step);
    return !member.push(encode_push(step), {.blocks = 9, .slots = 1, .block_tokens = 16, .max_model_len = 64});
  };
  EXPECT_TRUE(refused([](auto& step) { step.blocks[1] = BlockId(9); }));
  EXPECT_TRUE(refused([](auto& step) { step.blocks[1] = BlockId(-1); }));
  EXPECT_TRUE(refused([](auto& step) { step.blocks.pop_back(); }));
  EXPECT_TRUE(refused([](auto& step) { step.begin_token = -1; }));
  EXPECT_TRUE(refused([](auto& step) { step.begin_token = 33; }));
  EXPECT_TRUE(refused([](auto& step) { step.end_token = 41; }));
  EXPECT_TRUE(refused([](auto& step) { step.token_count = 65; }));
  EXPECT_TRUE(refused([](auto& step) { step.push_id = 0; }));
  EXPECT_TRUE(producer.planned.empty());
}

}  // namespace
}  // namespace baton::engine::testing
