// Experts over the ranks of several replicas: each gives the bits that it would give alone, whatever the others do,
// also when one has nothing to do; and what comes from another process is checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "models/golden_checkpoint.h"
#include "models/grid_runner.h"
#include "models/layers/moe_replicas.h"

namespace baton::models {
namespace {

using parallel::GridSizes;
using ::testing::HasSubstr;

// Replicas of one process.
class Replicas {
 public:
  explicit Replicas(int size) : size_(size), sent_(static_cast<size_t>(size)) {}

  class End : public ReplicaExchange {
   public:
    End(Replicas& all, int rank) : all_(all), rank_(rank) {}
    int size() const override { return all_.size_; }
    int rank() const override { return rank_; }
    Result<std::vector<std::vector<std::byte>>> exchange(std::vector<std::vector<std::byte>> to_each) override {
      return all_.exchange(rank_, std::move(to_each));
    }

   private:
    Replicas& all_;
    const int rank_;
  };

 private:
  using Messages = std::vector<std::vector<std::byte>>;

  Messages exchange(int rank, Messages to_each) {
    std::unique_lock lock(mutex_);
    sent_[static_cast<size_t>(rank)] = std::move(to_each);
    meet(lock);
    Messages mine;
    for (const Messages& from : sent_) mine.push_back(from[static_cast<size_t>(rank)]);
    meet(lock);
    return mine;
  }
  void meet(std::unique_lock<std::mutex>& lock) {
    const uint64_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      wake_.notify_all();
    }
    wake_.wait(lock, [&] { return round_ != round; });
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  uint64_t round_ = 0;
  int arrived_ = 0;
  std::vector<Messages> sent_;
};

// The same number of steps in each: empty ones in between and at the end.
void pad(std::mt19937& random, std::vector<GridScript>& scripts) {
  size_t most = 0;
  for (const GridScript& script : scripts) most = std::max(most, script.steps.size() + 2);
  for (GridScript& script : scripts) {
    while (script.steps.size() < most) {
      script.steps.insert(script.steps.begin() + static_cast<int64_t>(random() % (script.steps.size() + 1)),
                          std::vector<ScriptPart>{});
    }
  }
}

void expect_replicas_equal_one_rank(const std::string& path, const GridSizes& sizes,
                                    const std::vector<GridScript>& scripts) {
  SCOPED_TRACE(sizes.text());
  Replicas replicas(sizes.dp);
  std::vector<GridOutcome> many(scripts.size());
  std::vector<std::thread> threads;
  for (int d = 0; d < sizes.dp; ++d) {
    threads.emplace_back([&, d] {
      Replicas::End end(replicas, d);
      many[static_cast<size_t>(d)] = GridRunner(path, sizes, {}, d, &end).run(scripts[static_cast<size_t>(d)]);
    });
  }
  for (auto& thread : threads) thread.join();
  if (testing::Test::HasFatalFailure()) return;
  for (size_t d = 0; d < scripts.size(); ++d) {
    const GridOutcome one = GridRunner(path, {}, {}).run(scripts[d]);
    ASSERT_EQ(many[d].logits, one.logits) << "replica " << d;
    ASSERT_TRUE(many[d].cache == one.cache) << "replica " << d;
  }
}

class RanksReplicas : public testing::TestWithParam<std::string> {};

TEST_P(RanksReplicas, EachGivesTheBitsThatItWouldGiveAlone) {
  const GoldenCheckpoint checkpoint(GetParam());
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(GetParam()) & 0xffff));
  for (const GridSizes& sizes :
       {GridSizes{.dp = 2, .expert_parallel = true}, GridSizes{.dp = 2, .pp = 2, .tp = 2, .expert_parallel = true},
        // More expert ranks than the eight experts.
        GridSizes{.dp = 3, .pcp = 2, .tp = 2, .dcp = 2, .expert_parallel = true}}) {
    std::vector<GridScript> scripts;
    for (int d = 0; d < sizes.dp; ++d) scripts.push_back(random_script(random, 256, 2, 40));
    pad(random, scripts);
    expect_replicas_equal_one_rank(checkpoint.path(), sizes, scripts);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksReplicas, testing::Values("deepseek_v3", "kimi_linear", "kimi_k31"),
                         [](const auto& param_info) { return param_info.param; });

// More rows than go at once, on one of them alone.
TEST(RanksReplicas, ALargeBatchGoesInPassesWhileAnotherIsIdle) {
  const GoldenCheckpoint checkpoint("deepseek_v3");
  std::mt19937 random(4);
  GridScript large, idle;
  for (int s = 0; s < 3; ++s) {
    std::vector<int32_t> tokens(450);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 256);
    large.sequences.push_back(std::move(tokens));
  }
  large.steps = {{{0, 450}, {1, 450}, {2, 440}}, {{2, 10}}};
  idle.sequences = {{1, 2, 3}};
  idle.steps = {{}, {{0, 3}}};
  expect_replicas_equal_one_rank(checkpoint.path(), {.dp = 2, .tp = 2, .expert_parallel = true}, {large, idle});
}

// A replica whose messages are what a test says.
class Forger : public ReplicaExchange {
 public:
  explicit Forger(std::vector<std::byte> forged) : forged_(std::move(forged)) {}
  int size() const override { return 2; }
  int rank() const override { return 0; }
  Result<std::vector<std::vector<std::byte>>> exchange(std::vector<std::vector<std::byte>> to_each) override {
    return std::vector<std::vector<std::byte>>{std::move(to_each[0]), forged_};
  }

 private:
  const std::vector<std::byte> forged_;
};

std::string said_of(const std::vector<int32_t>& words) {
  Forger forger({std::as_bytes(std::span(words)).begin(), std::as_bytes(std::span(words)).end()});
  auto replicas =
      MoeReplicas::allocate({}, {.pass_rows = 8, .slots = 2, .width = 1, .first_expert = {0, 4, 8}}, &forger);
  EXPECT_TRUE(replicas.has_value());
  const int32_t ids[] = {1, 5};
  const float x[] = {1};
  try {
    replicas->offer(ids, x, 1, false);
  } catch (const parallel::GroupBroken& broken) {
    return broken.what();
  }
  return "";
}

TEST(MoeReplicas, AMessageThatIsNotWhatItMustBeIsRefused) {
  EXPECT_EQ(said_of({1, 1, 1, 0, 0, 3, 0}), "");
  EXPECT_THAT(said_of({1, 1}), HasSubstr("replica 1 is cut short"));
  EXPECT_THAT(said_of({1, 1, 2, 0, 0, 3, 0, 0}), HasSubstr("rows of 2"));
  EXPECT_THAT(said_of({5, 1, 1, 0, 0, 3, 0}), HasSubstr("at most 4 rows"));
  EXPECT_THAT(said_of({-1, 1, 1, 0, 0, 3, 0}), HasSubstr("at most 4 rows"));
  EXPECT_THAT(said_of({1, 3, 1, 0, 0, 3, 0}), HasSubstr("3 pairs of 1 rows"));
  EXPECT_THAT(said_of({1, 1, 1, 0, 0, 3, 0, 0}), HasSubstr("bytes for 1 pairs"));
  EXPECT_THAT(said_of({1, 1, 1, 0, 1, 3, 0}), HasSubstr("of row 1"));
  EXPECT_THAT(said_of({1, 1, 1, 0, 0, 4, 0}), HasSubstr("expert 4"));
  EXPECT_THAT(said_of({1, 1, 1, 0, 0, -1, 0}), HasSubstr("expert -1"));
}

TEST(RanksReplicas, ExpertsOverReplicasNeedAnExchange) {
  const GoldenCheckpoint checkpoint("deepseek_v3");
  ComputePool pool({.threads = 1});
  LoadOptions options;
  options.rank.place.sizes = {.dp = 2, .expert_parallel = true};
  EXPECT_THAT(load_model(checkpoint.path(), options, pool).error().message(), HasSubstr("2 replicas need an exchange"));
}

}  // namespace
}  // namespace baton::models
