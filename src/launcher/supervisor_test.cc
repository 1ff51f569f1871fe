// A launch must end as a whole, in bounded time, with the right exit code, whatever its children do.
#include "launcher/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <random>

namespace baton::launcher {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const TimePoint kStart{seconds(1000)};

TEST(Supervisor, ChildrenThatEndWellStopNobody) {
  Supervisor supervisor(2, seconds(30));
  // A shell that ends leaves nothing behind: its group is told too.
  EXPECT_THAT(supervisor.leader_exited(0, {}, kStart), ElementsAre(Action{0, SIGTERM}));
  supervisor.group_gone(0);
  EXPECT_FALSE(supervisor.finished());
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.next_tick(), std::nullopt);
  supervisor.leader_exited(1, {}, kStart);
  supervisor.group_gone(1);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 0);
  EXPECT_EQ(supervisor.outcome(0), "exit 0");
}

TEST(Supervisor, TheFirstFailureStopsTheSiblingsAndIsTheExitCode) {
  Supervisor supervisor(3, seconds(30));
  EXPECT_THAT(supervisor.leader_exited(1, {.code = 3}, kStart),
              ElementsAre(Action{0, SIGTERM}, Action{1, SIGTERM}, Action{2, SIGTERM}));
  supervisor.group_gone(1);
  EXPECT_THAT(supervisor.leader_exited(0, {.code = 7}, kStart), IsEmpty());
  supervisor.group_gone(0);
  supervisor.leader_exited(2, {.signal = SIGTERM}, kStart);
  EXPECT_FALSE(supervisor.finished()) << "the shell is gone, its server is not";
  supervisor.group_gone(2);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 3);
  EXPECT_EQ(supervisor.outcome(1), "exit 3, failed first");
  EXPECT_EQ(supervisor.outcome(2), "killed by SIGTERM, after SIGTERM");
}

TEST(Supervisor, WhoIgnoresTheSignalIsKilledAfterTheGrace) {
  Supervisor supervisor(2, seconds(30));
  EXPECT_THAT(supervisor.signalled(SIGINT, kStart), ElementsAre(Action{0, SIGINT}, Action{1, SIGINT}));
  EXPECT_EQ(supervisor.next_tick(), kStart + seconds(30));
  EXPECT_THAT(supervisor.tick(kStart + seconds(29)), IsEmpty());
  supervisor.leader_exited(0, {.code = 130}, kStart + seconds(1));
  supervisor.group_gone(0);
  EXPECT_THAT(supervisor.tick(kStart + seconds(30)), ElementsAre(Action{1, SIGKILL}));
  supervisor.leader_exited(1, {.signal = SIGKILL}, kStart + seconds(30));
  supervisor.group_gone(1);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 137);
}

TEST(Supervisor, AStopInOrderIsNoFailure) {
  Supervisor supervisor(3, seconds(30));
  supervisor.signalled(SIGTERM, kStart);
  supervisor.leader_exited(0, {.code = 0}, kStart);
  supervisor.leader_exited(1, {.signal = SIGTERM}, kStart);
  supervisor.leader_exited(2, {.code = 143}, kStart);
  for (int child = 0; child < 3; ++child) supervisor.group_gone(child);
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST(Supervisor, AChildThatFailsWhileStoppingIsTheExitCode) {
  Supervisor supervisor(2, seconds(30));
  supervisor.signalled(SIGTERM, kStart);
  supervisor.leader_exited(0, {}, kStart);
  supervisor.leader_exited(1, {.code = 5}, kStart);
  for (int child = 0; child < 2; ++child) supervisor.group_gone(child);
  EXPECT_EQ(supervisor.exit_code(), 5);
  EXPECT_EQ(supervisor.first_failure(), std::nullopt);
}

TEST(Supervisor, ASecondSignalKillsAtOnce) {
  Supervisor supervisor(2, seconds(30));
  supervisor.signalled(SIGINT, kStart);
  supervisor.leader_exited(0, {}, kStart);
  supervisor.group_gone(0);
  EXPECT_THAT(supervisor.signalled(SIGINT, kStart + seconds(1)), ElementsAre(Action{1, SIGKILL}));
  EXPECT_THAT(supervisor.signalled(SIGINT, kStart + seconds(2)), IsEmpty());
}

TEST(Supervisor, AChildThatCanNotStartStopsTheOthers) {
  Supervisor supervisor(2, seconds(30));
  EXPECT_THAT(supervisor.start_failed(1, kStart), ElementsAre(Action{0, SIGTERM}));
  supervisor.leader_exited(0, {.signal = SIGTERM}, kStart);
  supervisor.group_gone(0);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 127);
}

TEST(Supervisor, WhatOutlivesItsShellIsStopped) {
  Supervisor supervisor(1, seconds(30));
  EXPECT_THAT(supervisor.leader_exited(0, {}, kStart), ElementsAre(Action{0, SIGTERM}));
  EXPECT_EQ(supervisor.next_tick(), kStart + seconds(30));
  EXPECT_THAT(supervisor.tick(kStart + seconds(30)), ElementsAre(Action{0, SIGKILL}));
  EXPECT_THAT(supervisor.tick(kStart + seconds(35)), IsEmpty());
  EXPECT_TRUE(supervisor.finished()) << "what even SIGKILL does not end is left, and said";
  EXPECT_THAT(supervisor.outcome(0), HasSubstr("would not end"));
  EXPECT_EQ(supervisor.exit_code(), 137);
}

// Whatever happens in whatever order: every group is asked at most once and killed at most once, never after it is
// gone, and the launch ends within grace and the seconds after SIGKILL.
TEST(Supervisor, RandomHistoriesEndInBoundedTime) {
  std::mt19937 random(20261130);
  for (int round = 0; round < 2000; ++round) {
    const int count = 1 + static_cast<int>(random() % 5);
    Supervisor supervisor(count, seconds(10));
    std::vector<int> asked(static_cast<size_t>(count)), killed(asked);
    const auto apply = [&](const std::vector<Action>& actions) {
      for (const auto& action : actions) {
        const auto child = static_cast<size_t>(action.child);
        ASSERT_NE(supervisor.state(action.child), Supervisor::State::kGone);
        ++(action.signal == SIGKILL ? killed : asked)[child];
      }
    };
    TimePoint now = kStart;
    std::optional<TimePoint> stopped;
    for (int step = 0; step < 200 && !supervisor.finished(); ++step) {
      const int child = static_cast<int>(random() % static_cast<unsigned>(count));
      const auto state = supervisor.state(child);
      switch (random() % 8) {
        case 0:
          if (state == Supervisor::State::kRunning) {
            apply(supervisor.leader_exited(child, {.code = random() % 3 == 0 ? 1 : 0}, now));
          }
          break;
        case 1:
          if (state == Supervisor::State::kLeaderless) apply(supervisor.group_gone(child));
          break;
        case 2:
          if (random() % 8 == 0) apply(supervisor.signalled(SIGTERM, now));
          break;
        default:
          now += seconds(1);
          apply(supervisor.tick(now));
      }
      if (supervisor.stopping() && !stopped) stopped = now;
      if (stopped) ASSERT_LE(now - *stopped, seconds(16));
    }
    for (const int times : asked) EXPECT_LE(times, 1);
    for (const int times : killed) EXPECT_LE(times, 1);
    if (supervisor.finished()) EXPECT_LT(supervisor.exit_code(), 256);
  }
}

}  // namespace
}  // namespace baton::launcher
