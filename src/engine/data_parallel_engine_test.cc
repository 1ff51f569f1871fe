// Several replicas must look like one engine: the same tokens, every request ended once, no replica left idle or full
// while another is not.
#include "engine/data_parallel_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/testing/harness.h"

namespace baton::engine::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Harnesses own real engines; the router owns these doors to them.
class Door final : public Engine {
 public:
  explicit Door(Engine& engine) : engine_(engine) {}
  Result<void> submit(EngineRequest request, OutputCallback on_output) override {
    return engine_.submit(std::move(request), std::move(on_output));
  }
  void abort(const std::string& id) override { engine_.abort(id); }
  void finish(const std::string& id) override { engine_.finish(id); }
  int64_t abort_all() override { return engine_.abort_all(); }
  void reset_prefix_cache() override { engine_.reset_prefix_cache(); }
  EngineStats stats() const override { return engine_.stats(); }
  bool healthy() const override { return engine_.healthy(); }
  std::string health_reason() const override { return engine_.health_reason(); }
  const EngineConfig& config() const override { return engine_.config(); }
  int vocab_size() const override { return engine_.vocab_size(); }
  void drain(Duration timeout) override { engine_.drain(timeout); }

 private:
  Engine& engine_;
};

class Replicas {
 public:
  explicit Replicas(int count, const EngineConfig& config = Harness::small_config(), FakeModelOptions model = {}) {
    std::vector<std::unique_ptr<Engine>> doors;
    for (int i = 0; i < count; ++i) {
      harnesses_.push_back(std::make_unique<Harness>(Harness::Options{.config = config, .model = model}));
      doors.push_back(std::make_unique<Door>(harnesses_.back()->engine()));
    }
    router_ = std::make_unique<DataParallelEngine>(std::move(doors));
  }
  DataParallelEngine& router() { return *router_; }
  Harness& harness(size_t i) { return *harnesses_[i]; }

  Result<void> submit(EngineRequest request) {
    const std::string id = request.id;
    return router_->submit(std::move(request), [this, id](RequestOutput&& output) {
      std::lock_guard lock(mutex_);
      auto& gathered = gathered_[id];
      EXPECT_FALSE(gathered.finished) << id;
      for (const auto& token : output.tokens) gathered.tokens.push_back(token.token);
      gathered.finished = output.finish.has_value();
      gathered.last = std::move(output);
      changed_.notify_all();
    });
  }
  Gathered wait(const std::string& id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(10), [&] { return gathered_[id].finished; })) << id;
    return gathered_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Gathered> gathered_;
  std::vector<std::unique_ptr<Harness>> harnesses_;
  std::unique_ptr<DataParallelEngine> router_;
};

EngineRequest seeded(int i) {
  auto request = make_request(fmt::format("r{}", i), random_prompt(static_cast<uint64_t>(i), 5 + i % 20));
  request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.seed = 7;
  return request;
}

TEST(DataParallel, ReplicasGiveTheTokensOfOne) {
  Harness one({.config = Harness::small_config()});
  Replicas three(3);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(three.submit(seeded(i)).has_value());
  for (int i = 0; i < 60; ++i) EXPECT_EQ(three.wait(seeded(i).id).tokens, one.run(seeded(i)).tokens) << i;
  EXPECT_THAT(three.router().live_counts(), ElementsAre(0, 0, 0));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(three.harness(i).all_free());
}

// A replica whose requests end when the test says so.
class Scripted final : public Engine {
 public:
  Result<void> submit(EngineRequest request, OutputCallback on_output) override {
    if (refusal) return fail(*refusal);
    live[request.id] = std::move(on_output);
    return {};
  }
  void abort(const std::string& id) override {
    aborted.push_back(id);
    end(id, FinishReason::kAbort);
  }
  void finish(const std::string& id) override { end(id, FinishReason::kStop); }
  int64_t abort_all() override { return static_cast<int64_t>(live.size()); }
  void reset_prefix_cache() override { ++resets; }
  EngineStats stats() const override { return {.running = static_cast<int64_t>(live.size())}; }
  bool healthy() const override { return death.empty(); }
  std::string health_reason() const override { return death; }
  const EngineConfig& config() const override { return config_; }
  int vocab_size() const override { return 97; }
  void drain(Duration) override {}

  void end(const std::string& id, FinishReason reason) {
    auto found = live.extract(id);
    if (found.empty()) return;
    RequestOutput output;
    output.id = id;
    output.finish = reason;
    found.mapped()(std::move(output));
  }

  std::optional<Status> refusal;
  std::string death;
  std::map<std::string, OutputCallback> live;
  std::vector<std::string> aborted;
  int resets = 0;

 private:
  EngineConfig config_;
};

struct ScriptedReplicas {
  explicit ScriptedReplicas(int count) {
    std::vector<std::unique_ptr<Engine>> engines;
    for (int i = 0; i < count; ++i) {
      auto engine = std::make_unique<Scripted>();
      replicas.push_back(engine.get());
      engines.push_back(std::move(engine));
    }
    router = std::make_unique<DataParallelEngine>(std::move(engines));
  }
  Result<void> submit(const std::string& id) {
    return router->submit(make_request(id, {1}), [this](RequestOutput&& output) {
      EXPECT_FALSE(live_when_told.contains(output.id));
      live_when_told[output.id] = router->live_counts();
    });
  }
  std::vector<Scripted*> replicas;
  std::unique_ptr<DataParallelEngine> router;
  std::map<std::string, std::vector<int64_t>> live_when_told;
};

TEST(DataParallel, TheLeastLoadedGetsTheNextAndEqualsTakeTurns) {
  ScriptedReplicas three(3);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(three.submit(fmt::format("r{}", i)).has_value());
  EXPECT_THAT(three.router->live_counts(), ElementsAre(2, 2, 2));
  EXPECT_TRUE(three.replicas[1]->live.contains("r1"));
  three.router->abort("r1");
  three.router->finish("r4");
  EXPECT_THAT(three.replicas[0]->aborted, ::testing::IsEmpty());
  EXPECT_THAT(three.live_when_told["r4"], ElementsAre(2, 0, 2)) << "the id is free when the client hears of the end";
  ASSERT_TRUE(three.submit("a").has_value());
  ASSERT_TRUE(three.submit("b").has_value());
  EXPECT_THAT(three.router->live_counts(), ElementsAre(2, 2, 2));
  EXPECT_TRUE(three.replicas[1]->live.contains("a") && three.replicas[1]->live.contains("b"));
  EXPECT_EQ(three.router->abort_all(), 6);
  EXPECT_EQ(three.router->stats().running, 6);
  three.router->reset_prefix_cache();
  EXPECT_EQ(three.replicas[2]->resets, 1);
}

TEST(DataParallel, AnIdIsOneRequestOverAllReplicas) {
  ScriptedReplicas two(2);
  ASSERT_TRUE(two.submit("a").has_value());
  const auto again = two.submit("a");
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
  two.replicas[0]->end("a", FinishReason::kLength);
  EXPECT_TRUE(two.submit("a").has_value());
}

// A prefill engine still offers the KV of a request that has ended; only it knows.
TEST(DataParallel, AnAbortOfAnEndedRequestReachesWhoMayHoldItsOffer) {
  ScriptedReplicas two(2);
  ASSERT_TRUE(two.submit("a").has_value());
  two.replicas[0]->end("a", FinishReason::kLength);
  two.router->abort("a");
  EXPECT_THAT(two.replicas[0]->aborted, ElementsAre("a"));
  EXPECT_THAT(two.replicas[1]->aborted, ElementsAre("a"));
}

TEST(DataParallel, ARequestMayNameItsReplica) {
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<Scripted*> replicas;
  for (int i = 0; i < 2; ++i) {
    auto engine = std::make_unique<Scripted>();
    replicas.push_back(engine.get());
    engines.push_back(std::move(engine));
  }
  DataParallelEngine router(std::move(engines), 4);
  const auto submit = [&](const std::string& id, int rank) {
    auto request = make_request(id, {1});
    request.data_parallel_rank = rank;
    return router.submit(request, [](RequestOutput&&) {});
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit(fmt::format("r{}", i), 5).has_value());
  EXPECT_THAT(router.live_counts(), ElementsAre(0, 3));
  EXPECT_EQ(submit("low", 3).error().message(), "data_parallel_rank 3 is out of range [4, 6)");
  EXPECT_FALSE(submit("high", 6).has_value());
  replicas[1]->refusal = Status(Code::kResourceExhausted, "full");
  EXPECT_EQ(submit("x", 5).error().message(), "full") << "no other takes it";
}

TEST(DataParallel, AWrongRequestIsRefusedOnceAndAFullReplicaPassedOver) {
  ScriptedReplicas two(2);
  two.replicas[0]->refusal = Status(Code::kInvalidArgument, "too long");
  two.replicas[1]->refusal = Status(Code::kInvalidArgument, "asked twice");
  EXPECT_EQ(two.submit("w").error().message(), "too long");
  EXPECT_THAT(two.router->live_counts(), ElementsAre(0, 0));
  two.replicas[1]->refusal.reset();
  two.replicas[0]->refusal = Status(Code::kResourceExhausted, "full");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(two.submit(fmt::format("r{}", i)).has_value());
  EXPECT_THAT(two.router->live_counts(), ElementsAre(0, 5));
  two.replicas[1]->refusal = Status(Code::kResourceExhausted, "full too");
  EXPECT_EQ(two.submit("x").error().code(), Code::kResourceExhausted);
  EXPECT_THAT(two.router->live_counts(), ElementsAre(0, 5));
}

TEST(DataParallel, StatisticsAreSummed) {
  Replicas two(2);
  const auto one = two.harness(0).engine().stats();
  EXPECT_EQ(two.router().stats().kv_blocks_total, 2 * one.kv_blocks_total);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(two.submit(seeded(i)).has_value());
  for (int i = 0; i < 4; ++i) two.wait(seeded(i).id);
  const auto sum = two.router().stats();
  EXPECT_EQ(sum.prefix_queries,
            two.harness(0).engine().stats().prefix_queries + two.harness(1).engine().stats().prefix_queries);
  EXPECT_GT(sum.prefix_queries, 0);
}

TEST(DataParallel, ADeadReplicaIsPassedOverAndNamed) {
  Replicas two(2, Harness::small_config(), {.throw_at_step = 5});
  ASSERT_TRUE(two.submit(make_request("deadly", random_prompt(1, 9))).has_value());
  EXPECT_EQ(two.wait("deadly").last.finish, FinishReason::kError);
  EXPECT_FALSE(two.router().healthy());
  EXPECT_THAT(two.router().health_reason(), HasSubstr("replica 0: "));
  auto brief = make_request("brief", random_prompt(1, 4));
  brief.sampling.max_tokens = 2;
  ASSERT_TRUE(two.submit(brief).has_value());
  EXPECT_EQ(two.wait("brief").last.finish, FinishReason::kLength);
  ASSERT_TRUE(two.submit(make_request("last", random_prompt(1, 9))).has_value());
  EXPECT_EQ(two.wait("last").last.finish, FinishReason::kError);
  const auto refused = two.submit(make_request("after", random_prompt(1, 9)));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_THAT(refused.error().message(), HasSubstr("replica 1: "));
}

TEST(DataParallel, DrainStopsAdmittingAndEndsEverything) {
  const auto hold = std::make_shared<std::atomic<bool>>(true);
  Replicas two(2, Harness::small_config(), {.hold = hold, .hold_from_step = 1});
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(two.submit(seeded(i)).has_value());
  std::jthread drainer([&] { two.router().drain(std::chrono::milliseconds(100)); });
  for (int i = 0;; ++i) {
    const auto late = two.submit(make_request(fmt::format("late{}", i), random_prompt(1, 4)));
    if (late) continue;
    EXPECT_EQ(late.error().code(), Code::kUnavailable);
    break;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  *hold = false;
  drainer.join();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(two.wait(seeded(i).id).last.finish, FinishReason::kAbort) << i;
}

}  // namespace
}  // namespace baton::engine::testing
