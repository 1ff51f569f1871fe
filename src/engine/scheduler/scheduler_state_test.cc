// Recurrent state in the scheduler: where chunks end, what is copied when, what a prefix hit is, and that no slot is
// lost or given to two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/scheduler/scheduler.h"

namespace baton::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SchedulerStateTest : public testing::Test {
 protected:
  SchedulerOptions options_{
      .max_model_len = 100, .max_num_batched_tokens = 40, .max_num_seqs = 4, .max_prompt_logit_rows = 8};
  int blocks_count_ = 40;
  int slots_ = 8;

  void start() {
    blocks_ =
        std::make_unique<kv::BlockManager>(kv::BlockManager::Options{.block_count = blocks_count_, .block_size = 4});
    states_ = std::make_unique<kv::StatePool>(slots_);
    scheduler_ = std::make_unique<Scheduler>(options_, *blocks_, *states_);
  }

  struct Wants {
    bool remote_decode = false;
    std::optional<RemotePrefill> remote_prefill;
    int first_token = 0;
    int max_tokens = 50;
  };
  SequenceId add(int length, Wants wants) {
    const SequenceId id(next_++);
    std::vector<TokenId> tokens(static_cast<size_t>(length));
    std::iota(tokens.begin(), tokens.end(), wants.first_token);
    SamplingParams params;
    params.seed = 1;
    params.max_tokens = wants.max_tokens;
    scheduler_->add(std::make_unique<Sequence>(Sequence{.id = id,
                                                        .tokens = tokens,
                                                        .prompt_count = length,
                                                        .given_count = length,
                                                        .sampling = SamplingState(params, 0, 0, tokens, {}),
                                                        .blocks = {},
                                                        .remote_decode = wants.remote_decode,
                                                        .remote_prefill = wants.remote_prefill}));
    return id;
  }
  SequenceId add(int length) { return add(length, {}); }

  StepPlan step() {
    auto plan = scheduler_->schedule();
    StepResult result;
    for (const auto& sequence : plan.sequences) {
      auto& made = result.sequences.emplace_back();
      made.samples.resize(sequence.sample_rows.size());
      for (auto& sample : made.samples) sample.token = 7;
    }
    updates_ = scheduler_->update(plan, std::move(result));
    return plan;
  }
  // (first position, rows, copies) of a plan's only sequence.
  struct Part {
    int64_t first = 0;
    size_t rows = 0;
    size_t copies = 0;
    bool operator==(const Part&) const = default;
    friend void PrintTo(const Part& part, std::ostream* out) {
      *out << part.first << "+" << part.rows << " with " << part.copies << " copies";
    }
  };
  static Part only(const StepPlan& plan) {
    EXPECT_EQ(plan.sequences.size(), 1u);
    if (plan.sequences.size() != 1) return {};
    const auto& made = plan.sequences[0];
    EXPECT_TRUE(made.state_slot.has_value());
    return {made.first_position, made.tokens.size(), made.state_copies.size()};
  }

  std::unique_ptr<kv::BlockManager> blocks_;
  std::unique_ptr<kv::StatePool> states_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<SequenceUpdate> updates_;
  int64_t next_ = 0;
};

TEST_F(SchedulerStateTest, TheStateAtTheLastFullBlockOfAPromptIsKept) {
  start();
  add(14);
  EXPECT_EQ(only(step()), (Part{0, 12, 0}));
  const auto plan = step();
  EXPECT_EQ(only(plan), (Part{12, 2, 1}));
  EXPECT_EQ(plan.sequences[0].state_copies[0].from, *plan.sequences[0].state_slot);
  EXPECT_EQ(states_->snapshots(), 1);
  EXPECT_EQ(states_->held(), 1);
  EXPECT_EQ(only(step()), (Part{14, 1, 0})) << "and nothing while it decodes";
}

TEST_F(SchedulerStateTest, APromptOfWholeBlocksIsKeptOneBlockEarlier) {
  start();
  add(12);
  EXPECT_EQ(only(step()), (Part{0, 8, 0}));
  EXPECT_EQ(only(step()), (Part{8, 4, 1}));
}

TEST_F(SchedulerStateTest, APrefixHitStartsFromACopyOfItsState) {
  start();
  const auto first = add(14);
  step();
  const auto kept = step().sequences[0].state_copies[0].to;
  scheduler_->remove(first);
  EXPECT_EQ(states_->held(), 0);
  add(20);
  const auto plan = step();
  EXPECT_EQ(only(plan), (Part{12, 4, 1}));
  EXPECT_EQ(plan.sequences[0].state_copies[0].from, kept);
  EXPECT_EQ(plan.sequences[0].state_copies[0].to, *plan.sequences[0].state_slot);
  EXPECT_EQ(scheduler_->counters().prefix_hits, 12);
  EXPECT_EQ(only(step()), (Part{16, 4, 1})) << "its own last full block";
}

TEST_F(SchedulerStateTest, BlocksWithoutAStateAreNoHitButTheirEndIsKeptNextTime) {
  start();
  scheduler_->remove([&] {
    const auto id = add(31);
    step();
    step();
    return id;
  }());
  // Shares 20 tokens, at whose end no state was kept.
  std::vector<TokenId> tokens(25);
  std::iota(tokens.begin(), tokens.begin() + 20, 0);
  std::iota(tokens.begin() + 20, tokens.end(), 500);
  SamplingParams params;
  params.seed = 1;
  const auto add_fork = [&] {
    const SequenceId id(next_++);
    scheduler_->add(std::make_unique<Sequence>(Sequence{.id = id,
                                                        .tokens = tokens,
                                                        .prompt_count = 25,
                                                        .given_count = 25,
                                                        .sampling = SamplingState(params, 0, 0, tokens, {}),
                                                        .blocks = {}}));
    return id;
  };
  const auto fork = add_fork();
  EXPECT_EQ(only(step()), (Part{0, 20, 0}));
  EXPECT_EQ(only(step()), (Part{20, 4, 1})) << "seen twice: kept";
  EXPECT_EQ(only(step()), (Part{24, 1, 1}));
  scheduler_->remove(fork);
  tokens[22] = 900;
  add_fork();
  EXPECT_EQ(only(step()), (Part{20, 4, 1})) << "found";
}

TEST_F(SchedulerStateTest, EveryIntervalIsKeptAlsoWhileItDecodes) {
  options_.state_snapshot_interval = 7;  // two blocks
  start();
  add(18);
  EXPECT_EQ(only(step()), (Part{0, 8, 0}));
  EXPECT_EQ(only(step()), (Part{8, 8, 1}));
  EXPECT_EQ(only(step()), (Part{16, 2, 1}));
  for (int position = 18; position < 24; ++position) EXPECT_EQ(only(step()), (Part{position, 1, 0}));
  EXPECT_EQ(only(step()), (Part{24, 1, 1}));
  EXPECT_EQ(states_->snapshots(), 3);
}

TEST_F(SchedulerStateTest, WithoutPrefixCachingNothingIsKept) {
  start();
  blocks_ = std::make_unique<kv::BlockManager>(
      kv::BlockManager::Options{.block_count = 40, .block_size = 4, .prefix_caching = false});
  scheduler_ = std::make_unique<Scheduler>(options_, *blocks_, *states_);
  add(14);
  EXPECT_EQ(only(step()), (Part{0, 14, 0}));
}

TEST_F(SchedulerStateTest, WhatIsHandedOverIsTheStateBeforeTheLastToken) {
  start();
  add(15, {.remote_decode = true, .max_tokens = 1});
  EXPECT_EQ(only(step()), (Part{0, 12, 0}));
  EXPECT_EQ(only(step()), (Part{12, 2, 1}));
  const auto last = step();
  EXPECT_EQ(only(last), (Part{14, 1, 1}));
  ASSERT_EQ(updates_.size(), 1u);
  ASSERT_TRUE(updates_[0].save);
  EXPECT_EQ(updates_[0].save->state_slot, last.sequences[0].state_copies[0].to);
  EXPECT_EQ(updates_[0].save->token_count, 15);
  EXPECT_EQ(states_->held(), 1) << "the hand-off's";
  // Again: everything but the last two tokens is found.
  add(15, {.remote_decode = true, .max_tokens = 1});
  EXPECT_EQ(only(step()), (Part{12, 2, 1}));
  EXPECT_EQ(only(step()), (Part{14, 1, 1}));
}

TEST_F(SchedulerStateTest, AHitThatEndsAtTheHandOffIsCopiedTwice) {
  start();
  add(13, {.remote_decode = true, .max_tokens = 1});
  EXPECT_EQ(only(step()), (Part{0, 12, 0}));
  EXPECT_EQ(only(step()), (Part{12, 1, 2})) << "kept and handed over";
  add(13, {.remote_decode = true, .max_tokens = 1});
  const auto plan = step();
  EXPECT_EQ(only(plan), (Part{12, 1, 2}));
  EXPECT_EQ(plan.sequences[0].state_copies[0].to, *plan.sequences[0].state_slot);
  EXPECT_EQ(plan.sequences[0].state_copies[1].from, *plan.sequences[0].state_slot);
  EXPECT_EQ(updates_[0].save->state_slot, plan.sequences[0].state_copies[1].to);
}

TEST_F(SchedulerStateTest, OneTokenHasNoStateToHandOver) {
  start();
  add(1, {.remote_decode = true, .max_tokens = 1});
  EXPECT_EQ(only(step()), (Part{0, 1, 0}));
  ASSERT_TRUE(updates_[0].save);
  EXPECT_FALSE(updates_[0].save->state_slot);
  EXPECT_EQ(states_->held(), 0);
}

TEST_F(SchedulerStateTest, NoMoreRunThanThereAreSlots) {
  slots_ = 2;
  start();
  for (int i = 0; i < 3; ++i) add(3, {.first_token = i * 1000});
  EXPECT_EQ(step().sequences.size(), 2u);
  scheduler_->remove(SequenceId(0));
  EXPECT_EQ(step().sequences.size(), 2u);
  EXPECT_EQ(scheduler_->waiting(), 0);
}

TEST_F(SchedulerStateTest, TheOnlyFreeSlotIsTheSnapshotItself) {
  slots_ = 2;
  start();
  const auto first = add(14);
  step();
  step();
  scheduler_->remove(first);
  EXPECT_EQ(states_->snapshots(), 1);
  add(14, {.remote_decode = true, .max_tokens = 1});  // needs both slots
  EXPECT_EQ(only(step()), (Part{12, 1, 0})) << "taken, not copied";
  EXPECT_EQ(only(step()), (Part{13, 1, 1}));
  EXPECT_EQ(states_->snapshots(), 0);
}

TEST_F(SchedulerStateTest, APreemptedSequenceGoesOnFromTheBestStateThatWasKept) {
  options_.test_preempt_probability = 0;
  blocks_count_ = 8;
  start();
  add(8);
  add(18, {.first_token = 1000});
  while (scheduler_->counters().preemptions == 0) step();
  EXPECT_EQ(states_->held(), 1);
  EXPECT_EQ(scheduler_->first_waiting(), SequenceId(1));
  scheduler_->remove(SequenceId(0));
  const auto plan = step();
  EXPECT_EQ(only(plan).first, 16);
  EXPECT_EQ(only(plan).copies, 1u);
}

TEST_F(SchedulerStateTest, APreemptedSequenceStillHandsItsStateOver) {
  options_.state_snapshot_interval = 4;
  blocks_count_ = 8;
  start();
  add(8);
  add(6, {.remote_decode = true, .first_token = 1000, .max_tokens = 14});
  while (scheduler_->counters().preemptions == 0) step();
  ASSERT_GE(scheduler_->find(SequenceId(1))->size(), 13) << "a state of 12 tokens was kept";
  scheduler_->remove(SequenceId(0));
  EXPECT_EQ(only(step()).first, 4) << "before what is to be handed over";
  EXPECT_EQ(only(step()).first, 5);
  while (updates_.empty() || !updates_[0].finish) step();
  ASSERT_TRUE(updates_[0].save);
  EXPECT_TRUE(updates_[0].save->state_slot);
  EXPECT_EQ(states_->held(), 1);
}

TEST_F(SchedulerStateTest, AFetchedStateIsRunFromWithoutACopy) {
  start();
  add(15, {.remote_prefill = RemotePrefill{.token_count = 15}});
  const auto fetch = step();
  ASSERT_EQ(fetch.loads.size(), 1u);
  ASSERT_TRUE(fetch.loads[0].state_slot);
  EXPECT_EQ(states_->held(), 1);
  scheduler_->finish_load(SequenceId(0), 15, true);
  const auto plan = step();
  EXPECT_EQ(only(plan), (Part{14, 1, 0}));
  EXPECT_EQ(plan.sequences[0].state_slot, fetch.loads[0].state_slot);
  EXPECT_EQ(scheduler_->find(SequenceId(0))->external_tokens, 15);
}

TEST_F(SchedulerStateTest, CachedBlocksAreNotFetchedAgainButTheStateIs) {
  start();
  scheduler_->remove([&] {
    const auto id = add(31);
    step();
    step();
    return id;
  }());
  add(24, {.remote_prefill = RemotePrefill{}});
  const auto fetch = step();
  ASSERT_EQ(fetch.loads.size(), 1u);
  EXPECT_EQ(fetch.loads[0].skip_tokens, 20);
  EXPECT_TRUE(fetch.loads[0].state_slot);
}

TEST_F(SchedulerStateTest, WithoutTheStateWhatCameIsOnlyACachedPrefix) {
  for (const int64_t valid : {15, 9}) {
    for (const bool state_valid : {false, true}) {
      if (valid == 15 && state_valid) continue;
      start();
      next_ = 0;
      add(15, {.remote_prefill = RemotePrefill{}});
      step();
      scheduler_->finish_load(SequenceId(0), valid, state_valid);
      EXPECT_EQ(states_->held(), 0);
      EXPECT_EQ(blocks_->used_blocks(), 0);
      EXPECT_EQ(only(step()).first, 0) << "recomputed from the start";
      EXPECT_EQ(scheduler_->find(SequenceId(0))->external_tokens, 0);
    }
  }
}

TEST_F(SchedulerStateTest, RemovingAFetchingSequenceLeavesItsStateHeld) {
  start();
  const auto id = add(15, {.remote_prefill = RemotePrefill{}});
  const auto fetch = step();
  auto removed = scheduler_->remove(id);
  EXPECT_EQ(removed.still_held_state, fetch.loads[0].state_slot);
  EXPECT_EQ(states_->held(), 1);
  states_->release(*removed.still_held_state);
}

TEST_F(SchedulerStateTest, AfterAResetNothingOldIsKept) {
  start();
  const auto id = add(14);
  step();
  blocks_->reset_prefix_cache();
  states_->forget_all();
  EXPECT_EQ(only(step()), (Part{12, 2, 0}));
  scheduler_->remove(id);
  EXPECT_EQ(states_->available(), 8);
}

}  // namespace
}  // namespace baton::engine
