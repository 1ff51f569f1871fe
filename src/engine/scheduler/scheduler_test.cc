// Who runs when: the token budget, chunks, preemption, priorities, and fetched KV that must not block the queue.
#include "engine/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace baton::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SchedulerTest : public testing::Test {
 protected:
  SchedulerOptions options_{
      .max_model_len = 100, .max_num_batched_tokens = 16, .max_num_seqs = 4, .max_prompt_logit_rows = 8};
  int blocks_count_ = 20;

  void start() {
    blocks_ =
        std::make_unique<kv::BlockManager>(kv::BlockManager::Options{.block_count = blocks_count_, .block_size = 4});
    states_ = std::make_unique<kv::StatePool>(0);
    scheduler_ = std::make_unique<Scheduler>(options_, *blocks_, *states_);
  }

  SequenceId add_for(std::string client, int length, int priority = 0) {
    client_ = std::move(client);
    const auto id = add(length, priority);
    client_.clear();
    return id;
  }
  SequenceId add(int length, int priority = 0, std::optional<RemotePrefill> remote = {}, SamplingParams params = {}) {
    const SequenceId id(next_++);
    std::vector<TokenId> tokens(static_cast<size_t>(length));
    std::iota(tokens.begin(), tokens.end(), static_cast<int>(id.value) * 1000);
    params.seed = 1;
    if (params.max_tokens == 16) params.max_tokens = 50;
    scheduler_->add(std::make_unique<Sequence>(Sequence{.id = id,
                                                        .priority = priority,
                                                        .client = client_,
                                                        .tokens = tokens,
                                                        .prompt_count = length,
                                                        .given_count = length,
                                                        .sampling = SamplingState(params, 0, 0, tokens, {}),
                                                        .blocks = {},
                                                        .remote_prefill = remote}));
    return id;
  }

  // Plans and runs one step; every sampled token is 7.
  StepPlan step() {
    auto plan = scheduler_->schedule();
    StepResult result;
    for (const auto& sequence : plan.sequences) {
      auto& made = result.sequences.emplace_back();
      made.samples.resize(sequence.sample_rows.size());
      made.prompts.resize(sequence.prompt_rows.size());
      for (auto& sample : made.samples) sample.token = 7;
    }
    updates_ = scheduler_->update(plan, std::move(result));
    return plan;
  }

  // (sequence, rows) of a plan.
  static std::vector<std::pair<int64_t, size_t>> rows(const StepPlan& plan) {
    std::vector<std::pair<int64_t, size_t>> all;
    for (const auto& sequence : plan.sequences) all.emplace_back(sequence.sequence.value, sequence.tokens.size());
    return all;
  }
  using Rows = std::pair<int64_t, size_t>;

  std::string client_;
  std::unique_ptr<kv::BlockManager> blocks_;
  std::unique_ptr<kv::StatePool> states_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<SequenceUpdate> updates_;
  int64_t next_ = 0;
};

TEST_F(SchedulerTest, PromptsAreCutForAPipeline) {
  options_.depth = 2;
  options_.least_chunk = 3;
  options_.max_num_seqs = 8;
  start();
  add(24);
  const auto first = scheduler_->schedule();
  EXPECT_THAT(rows(first), ElementsAre(Rows{0, 6}));
  const auto second = scheduler_->schedule();  // while the first is under way
  EXPECT_THAT(rows(second), ElementsAre(Rows{0, 6}));
  scheduler_->update(first, {.sequences = {{}}});
  EXPECT_THAT(rows(scheduler_->schedule()), ElementsAre(Rows{0, 5}));
  add(4);
  add(4);
  EXPECT_THAT(rows(scheduler_->schedule()), ElementsAre(Rows{0, 7}));  // 26 tokens are not computed: a quarter of them
  EXPECT_THAT(rows(scheduler_->schedule()), ElementsAre(Rows{1, 4}, Rows{2, 3}));
}

TEST_F(SchedulerTest, OneBudgetIsSharedRunningFirst) {
  start();
  add(10);
  add(10);
  EXPECT_THAT(rows(step()), ElementsAre(Rows{0, 10}, Rows{1, 6}));
  EXPECT_THAT(rows(step()), ElementsAre(Rows{0, 1}, Rows{1, 4}));
  add(30);
  const auto plan = step();
  EXPECT_THAT(rows(plan), ElementsAre(Rows{0, 1}, Rows{1, 1}, Rows{2, 14}));
  EXPECT_THAT(plan.sequences[2].sample_rows, IsEmpty());
  EXPECT_EQ(plan.row_count, 16);
}

TEST_F(SchedulerTest, LongPromptsComeInBoundedChunks) {
  options_.long_prefill_token_threshold = 5;
  start();
  add(12);
  add(12);
  EXPECT_THAT(rows(step()), ElementsAre(Rows{0, 5}, Rows{1, 5}));
  EXPECT_THAT(rows(step()), ElementsAre(Rows{0, 5}, Rows{1, 5}));
  const auto last = step();
  EXPECT_THAT(rows(last), ElementsAre(Rows{0, 2}, Rows{1, 2}));
  EXPECT_THAT(last.sequences[0].sample_rows, ElementsAre(1));
  EXPECT_EQ(last.sequences[0].first_position, 10);
}

TEST_F(SchedulerTest, NoMoreThanMaxNumSeqsRun) {
  options_.max_num_seqs = 2;
  start();
  for (int i = 0; i < 3; ++i) add(2);
  EXPECT_THAT(rows(step()), ElementsAre(Rows{0, 2}, Rows{1, 2}));
  EXPECT_EQ(scheduler_->waiting(), 1);
}

TEST_F(SchedulerTest, TheLastRunningIsPreemptedAndNothingNewStartsInThatStep) {
  blocks_count_ = 5;
  start();
  add(8);
  add(8);
  step();  // two blocks each
  add(1);
  EXPECT_THAT(rows(scheduler_->schedule()), ElementsAre(Rows{0, 1})) << "the ninth tokens need two blocks, one is left";
  EXPECT_EQ(scheduler_->counters().preemptions, 1);
  EXPECT_EQ(scheduler_->running(), 1);
  EXPECT_EQ(scheduler_->first_waiting(), SequenceId(1)) << "in front of the new one";
  EXPECT_EQ(scheduler_->find(SequenceId(1))->computed, 0);
}

TEST_F(SchedulerTest, OneThatMayLeaveLeavesInPlaceOfBeingPreempted) {
  blocks_count_ = 5;
  options_.recompute_elsewhere = true;
  start();
  add(8);
  const auto leaver = add(8);
  scheduler_->find(leaver)->may_leave = true;
  step();
  const auto plan = scheduler_->schedule();
  EXPECT_THAT(rows(plan), ElementsAre(Rows{0, 1}));
  EXPECT_THAT(plan.leaving, ElementsAre(leaver));
  EXPECT_EQ(plan.preempted, 1) << "nothing new starts in that step";
  EXPECT_EQ(scheduler_->counters().preemptions, 0);
  EXPECT_EQ(scheduler_->counters().recomputed, 1);
  EXPECT_EQ(blocks_->used_blocks(), 3);
  EXPECT_NE(scheduler_->remove(leaver).sequence, nullptr);
  EXPECT_EQ(scheduler_->waiting(), 0);
}

TEST_F(SchedulerTest, ASequenceAloneInItsWayPreemptsItself) {
  blocks_count_ = 4;
  start();
  add(8, 0, RemotePrefill{});  // fetching: holds two blocks
  scheduler_->schedule();
  add(8);
  step();
  const auto plan = step();
  EXPECT_THAT(rows(plan), IsEmpty());
  EXPECT_EQ(plan.preempted, 1);
  EXPECT_EQ(blocks_->used_blocks(), 2);
}

TEST_F(SchedulerTest, FetchedKvComesBeforeAnEarlierRequestThatItWouldStarve) {
  blocks_count_ = 4;
  start();
  add(12);
  add(4, 0, RemotePrefill{});
  step();  // 0 runs with three blocks, 1 fetches into one
  step();  // 0 needs a fourth block and has to go
  EXPECT_EQ(scheduler_->first_waiting(), SequenceId(0));
  scheduler_->finish_load(SequenceId(1), 4, false);
  EXPECT_EQ(scheduler_->first_waiting(), SequenceId(1));
  EXPECT_THAT(rows(step()).front(), (Rows{1, 1})) << "its last token is computed here";
}

TEST_F(SchedulerTest, PriorityDecidesWhoStartsAndWhoGoes) {
  options_.priority_scheduling = true;
  options_.max_num_seqs = 2;
  blocks_count_ = 4;
  start();
  add(4, 5);
  add(4, 1);
  add(4, 3);
  EXPECT_THAT(rows(step()), ElementsAre(Rows{1, 4}, Rows{2, 4}));
  step();  // all four blocks are used
  for (int i = 0; i < 3; ++i) step();
  const auto plan = step();  // both need a block at once; 2 is the less important
  EXPECT_THAT(rows(plan), ElementsAre(Rows{1, 1}));
  EXPECT_EQ(scheduler_->first_waiting(), SequenceId(2));
}

TEST_F(SchedulerTest, AVictimAlreadyInThePlanIsTakenOutOfIt) {
  options_.priority_scheduling = true;
  blocks_count_ = 3;
  start();
  add(3, 9);
  add(4, 1);
  step();  // 0 has a block with room for one more, 1 has a full one
  step();  // 0's fourth token fits; 1 takes the third block for its fifth
  for (int i = 0; i < 3; ++i) step();
  EXPECT_LE(scheduler_->running(), 1);
  EXPECT_EQ(scheduler_->first_waiting(), SequenceId(0));
  EXPECT_GT(scheduler_->counters().preemptions, 0);
}

TEST_F(SchedulerTest, FetchingDoesNotBlockTheHeadOfTheQueue) {
  start();
  add(9, 0, RemotePrefill{.token_count = 9});
  add(3);
  const auto plan = step();
  ASSERT_EQ(plan.loads.size(), 1u);
  EXPECT_EQ(plan.loads[0].token_count, 9);
  EXPECT_EQ(plan.loads[0].skip_tokens, 0);
  EXPECT_EQ(plan.loads[0].blocks.size(), 3u);
  EXPECT_THAT(rows(plan), ElementsAre(Rows{1, 3}));
  EXPECT_EQ(scheduler_->loading(), 1);
  scheduler_->finish_load(SequenceId(0), 9, false);
  EXPECT_THAT(rows(step()), ElementsAre(Rows{1, 1}, Rows{0, 1}));
  EXPECT_EQ(scheduler_->find(SequenceId(0))->external_tokens, 9);
}

TEST_F(SchedulerTest, AfterAFailedFetchTheRestIsComputed) {
  start();
  add(9, 0, RemotePrefill{});
  step();
  scheduler_->finish_load(SequenceId(0), 5, false);
  const auto plan = step();
  EXPECT_THAT(rows(plan), ElementsAre(Rows{0, 4}));
  EXPECT_EQ(plan.sequences[0].first_position, 5);
}

TEST_F(SchedulerTest, KvOfAnotherPromptOrAlreadyHereIsDeclined) {
  start();
  add(9, 0, RemotePrefill{.token_count = 8});
  const auto other = step();
  EXPECT_THAT(other.declined, ElementsAre(SequenceId(0)));
  EXPECT_THAT(rows(other), ElementsAre(Rows{0, 9}));
  // The same tokens again: two blocks are cached, and one token is left to compute in any case.
  next_ = 0;
  scheduler_->remove(SequenceId(0));
  add(9, 0, RemotePrefill{.token_count = 9});
  const auto hit = step();
  EXPECT_THAT(hit.declined, ElementsAre(SequenceId(0)));
  EXPECT_THAT(hit.loads, IsEmpty());
  EXPECT_THAT(rows(hit), ElementsAre(Rows{0, 1}));
}

TEST_F(SchedulerTest, OnlyWhatIsMissingIsFetched) {
  start();
  add(9);
  step();
  scheduler_->remove(SequenceId(0));
  next_ = 0;
  add(17, 0, RemotePrefill{.token_count = 17});
  const auto plan = step();
  ASSERT_EQ(plan.loads.size(), 1u);
  EXPECT_EQ(plan.loads[0].skip_tokens, 8);
  EXPECT_EQ(plan.loads[0].blocks.size(), 5u);
}

TEST_F(SchedulerTest, RemovingAFetchingSequenceLeavesItsBlocksHeld) {
  start();
  const auto id = add(9, 0, RemotePrefill{});
  step();
  auto removed = scheduler_->remove(id);
  EXPECT_EQ(removed.still_held.size(), 3u);
  EXPECT_EQ(blocks_->used_blocks(), 3);
  EXPECT_EQ(scheduler_->loading(), 0);
  blocks_->release_blocks(removed.still_held);
  EXPECT_EQ(blocks_->used_blocks(), 0);
}

TEST_F(SchedulerTest, PromptLogitsBoundTheChunkAndSkipTheCache) {
  start();
  add(9);
  step();
  scheduler_->remove(SequenceId(0));
  next_ = 0;
  SamplingParams params;
  params.prompt_logprobs = 1;
  add(12, 0, {}, params);
  const auto first = step();
  EXPECT_THAT(rows(first), ElementsAre(Rows{0, 8}));
  EXPECT_EQ(first.sequences[0].first_position, 0) << "a cached prefix has no logits";
  EXPECT_EQ(first.sequences[0].prompt_rows.size(), 8u);
  const auto second = step();
  EXPECT_THAT(rows(second), ElementsAre(Rows{0, 4}));
  EXPECT_THAT(second.sequences[0].prompt_rows, ElementsAre(0, 1, 2));
  EXPECT_THAT(second.sequences[0].prompt_targets, ElementsAre(9, 10, 11));
  EXPECT_THAT(second.sequences[0].sample_rows, ElementsAre(3));
  EXPECT_EQ(scheduler_->find(SequenceId(0))->prompt_results.size(), 11u);
}

TEST_F(SchedulerTest, ClientsTakeTurnsInTheQueue) {
  options_.max_num_seqs = 1;
  start();
  std::vector<int64_t> order;
  const auto run_all = [&] {
    while (scheduler_->has_sequences()) {
      const auto plan = step();
      if (plan.sequences.empty()) break;
      order.push_back(plan.sequences[0].sequence.value);
      scheduler_->remove(plan.sequences[0].sequence);
    }
  };
  for (int i = 0; i < 4; ++i) add_for("floods", 4);  // 0 to 3
  add_for("b", 4);                                   // 4
  add_for("c", 4);                                   // 5
  add_for("b", 4);                                   // 6
  run_all();
  EXPECT_THAT(order, ElementsAre(0, 4, 5, 1, 6, 2, 3));
  // Having been away earns nothing, and having flooded before costs nothing.
  order.clear();
  add_for("late", 4);    // 7
  add_for("floods", 4);  // 8
  add_for("late", 4);    // 9
  run_all();
  EXPECT_THAT(order, ElementsAre(7, 8, 9));
}

TEST_F(SchedulerTest, NamesOfClientsThatHaveGoneAreForgotten) {
  start();
  for (int i = 0; i < 1000; ++i) {
    scheduler_->remove(add_for("client " + std::to_string(i), 4));
    EXPECT_LT(scheduler_->clients_known(), 100u);
  }
}

TEST_F(SchedulerTest, ALongPromptCostsItsClientMoreTurns) {
  options_ = {.max_model_len = 8000, .max_num_batched_tokens = 8000, .max_num_seqs = 1, .max_prompt_logit_rows = 8};
  blocks_count_ = 2000;
  start();
  std::vector<int64_t> order;
  add_for("a", 3000);                           // 0: three turns
  add_for("a", 4);                              // 1
  for (int i = 0; i < 4; ++i) add_for("b", 4);  // 2 to 5
  while (scheduler_->has_sequences()) {
    const auto plan = step();
    ASSERT_FALSE(plan.sequences.empty());
    order.push_back(plan.sequences[0].sequence.value);
    scheduler_->remove(plan.sequences[0].sequence);
  }
  EXPECT_THAT(order, ElementsAre(0, 2, 3, 4, 1, 5));
}

TEST_F(SchedulerTest, PriorityGoesBeforeTurns) {
  options_.max_num_seqs = 1;
  options_.priority_scheduling = true;
  start();
  add_for("a", 4, 5);   // 0
  add_for("a", 4, -1);  // 1
  add_for("b", 4, 5);   // 2
  std::vector<int64_t> order;
  while (scheduler_->has_sequences()) {
    const auto plan = step();
    ASSERT_FALSE(plan.sequences.empty());
    order.push_back(plan.sequences[0].sequence.value);
    scheduler_->remove(plan.sequences[0].sequence);
  }
  EXPECT_THAT(order, ElementsAre(1, 0, 2));
}

}  // namespace
}  // namespace baton::engine
