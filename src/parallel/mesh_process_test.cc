// Real processes that are killed, stopped and crowded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "parallel/mesh_test_support.h"
#include "parallel/process_test_support.h"

namespace baton::parallel {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;
using Members = std::vector<std::unique_ptr<MemberProcess>>;

enum class Kind { kNet, kShm, kMixed };

// Mixed: even ranks are on one host, odd ones on another.
RendezvousOptions member_options(int port, int size, int rank, Kind kind) {
  auto options = loopback_group(port, size, rank);
  options.allow_shm = kind != Kind::kNet;
  if (kind == Kind::kMixed) options.host = rank % 2 == 0 ? "one" : "another";
  return options;
}

std::string_view expected_kind(Kind kind, int size, int rank) {
  if (kind == Kind::kShm) return "shared memory";
  const bool alone = (rank % 2 == 0 ? (size + 1) / 2 : size / 2) == 1;
  return kind == Kind::kNet || alone ? "tcp" : "shared memory and tcp";
}

// Members that exchange without end, and say when that ends, and why.
Members start_exchanging(int size, Kind kind, const MeshOptions& options = {}, size_t part_bytes = 3000) {
  const int port = free_port();
  Members members;
  for (int rank = 0; rank < size; ++rank) {
    members.push_back(std::make_unique<MemberProcess>([=](const MemberProcess::Say& say) {
      set_log_level(LogLevel::kError);
      auto meeting = member_options(port, size, rank, kind);
      meeting.mesh = options;
      auto mesh = meet(meeting);
      if (!mesh) return say(mesh.error().to_string());
      say(std::string((*mesh)->kind()));
      const std::vector<std::byte> part(part_bytes);
      const std::vector<Mesh::Bytes> to(static_cast<size_t>(size), part);
      std::vector<MessageBytes> from;
      for (int64_t round = 0;; ++round) {
        const auto done = (*mesh)->exchange(to, from);
        if (!done) return say(done.error().to_string());
        if (round == 4) say("running");
      }
    }));
  }
  for (int rank = 0; rank < size; ++rank) {
    auto& member = *members[static_cast<size_t>(rank)];
    EXPECT_EQ(member.hear(), expected_kind(kind, size, rank));
    EXPECT_EQ(member.hear(), "running");
  }
  return members;
}

class MeshProcessTest : public testing::TestWithParam<Kind> {};

TEST_P(MeshProcessTest, AKilledMemberEndsTheGroupWithinTwoSeconds) {
  const auto members = start_exchanging(4, GetParam());
  members[2]->signal(SIGKILL);
  const TimePoint killed = SteadyClock().now();
  for (const size_t rank : {0U, 1U, 3U}) {
    const auto said = members[rank]->hear();
    EXPECT_THAT(said, StartsWith("unavailable: process 2 (127.0.0.1:"));
    EXPECT_THAT(said, HasSubstr("is lost: its process"));
  }
  EXPECT_LT(seconds_between(killed, SteadyClock().now()), 2);
}

TEST_P(MeshProcessTest, KilledInTheMiddleOfALargePart) {
  const auto members = start_exchanging(3, GetParam(), {}, 8'000'000);
  members[0]->signal(SIGKILL);
  const TimePoint killed = SteadyClock().now();
  for (const size_t rank : {1U, 2U}) {
    EXPECT_THAT(members[rank]->hear(), StartsWith("unavailable: process 0 (127.0.0.1:"));
  }
  EXPECT_LT(seconds_between(killed, SteadyClock().now()), 2);
}

TEST_P(MeshProcessTest, AStoppedMemberIsLostAtTheDeadlineAndNotBefore) {
  const auto members = start_exchanging(
      3, GetParam(), {.deadline = std::chrono::milliseconds(900), .silence = std::chrono::milliseconds(500)});
  members[1]->signal(SIGSTOP);
  const TimePoint stopped = SteadyClock().now();
  for (const size_t rank : {0U, 2U}) {
    const auto said = members[rank]->hear();
    // Or process 0 first, which waits for process 1 itself, when that was stopped between two exchanges.
    EXPECT_THAT(said,
                AnyOf(StartsWith("unavailable: process 1 (127.0.0.1:"), HasSubstr("nor has process 1 (127.0.0.1:")));
    EXPECT_THAT(said, HasSubstr("within 0.9 s"));
  }
  const double waited = seconds_between(stopped, SteadyClock().now());
  EXPECT_GT(waited, 0.7);
  EXPECT_LT(waited, 3);
  members[1]->signal(SIGCONT);
  // Its own loss, or that of those who have gone without it, whichever it hears first.
  EXPECT_THAT(members[1]->hear(), StartsWith("unavailable: process "));
}

TEST_P(MeshProcessTest, APauseShorterThanTheDeadlineIsForgiven) {
  const auto members = start_exchanging(
      2, GetParam(), {.deadline = std::chrono::seconds(20), .silence = std::chrono::milliseconds(300)});
  members[1]->signal(SIGSTOP);
  EXPECT_EQ(members[0]->hear(std::chrono::milliseconds(600)), "(nothing)");
  members[1]->signal(SIGCONT);
  EXPECT_EQ(members[0]->hear(std::chrono::milliseconds(100)), "(nothing)");
}

void expect_crowd_works(int size, Kind kind, int rounds) {
  const int port = free_port();
  Members members;
  for (int rank = 0; rank < size; ++rank) {
    members.push_back(std::make_unique<MemberProcess>([=](const MemberProcess::Say& say) {
      set_log_level(LogLevel::kError);
      auto meeting = member_options(port, size, rank, kind);
      auto mesh = meet(meeting);
      if (!mesh) return say(mesh.error().to_string());
      const std::string wrong = use_everything(**mesh, rounds, 20'000);
      say(wrong.empty() ? "all right" : wrong);
      // Nobody leaves before all are through.
      const std::vector<Mesh::Bytes> to(static_cast<size_t>(size));
      std::vector<MessageBytes> from;
      static_cast<void>((*mesh)->exchange(to, from));
    }));
  }
  for (auto& member : members) EXPECT_EQ(member->hear(std::chrono::seconds(30)), "all right");
}

TEST_P(MeshProcessTest, EightProcessesOnFewCores) { expect_crowd_works(8, GetParam(), 20); }

TEST_P(MeshProcessTest, ThirtyTwoProcessesOnFewCores) { expect_crowd_works(32, GetParam(), 2); }

TEST_P(MeshProcessTest, ALeavingMembersReasonIsWhatTheOthersReport) {
  const int port = free_port();
  Members members;
  for (int rank = 0; rank < 3; ++rank) {
    members.push_back(std::make_unique<MemberProcess>([=, kind = GetParam()](const MemberProcess::Say& say) {
      set_log_level(LogLevel::kError);
      const auto meeting = member_options(port, 3, rank, kind);
      auto mesh = meet(meeting);
      if (!mesh) return say(mesh.error().to_string());
      if (rank == 2) return (*mesh)->leave("weights of layer 7 are torn");
      say((*mesh)->receive(2, 1, kNoTimeout).error().to_string());
    }));
  }
  for (const size_t rank : {0U, 1U}) {
    const auto said = members[rank]->hear();
    EXPECT_THAT(said, StartsWith("unavailable: process 2 (127.0.0.1:"));
    EXPECT_THAT(said, HasSubstr("has left: weights of layer 7 are torn"));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MeshProcessTest, testing::Values(Kind::kNet, Kind::kShm, Kind::kMixed),
                         [](const auto& info) {
                           return info.param == Kind::kNet ? "Net" : info.param == Kind::kShm ? "Shm" : "Mixed";
                         });

TEST(MeetingProcess, AMemberThatDiesWhileOthersAreAwaitedMayComeAgain) {
  const int port = free_port();
  const auto start = [&](int rank) {
    return std::make_unique<MemberProcess>([=](const MemberProcess::Say& say) {
      set_log_level(LogLevel::kError);
      auto mesh = meet(loopback_group(port, 3, rank));
      if (!mesh) return say(mesh.error().to_string());
      say(use_everything(**mesh, 3) + "done");
      const std::vector<Mesh::Bytes> to(3);
      std::vector<MessageBytes> from;
      static_cast<void>((*mesh)->exchange(to, from));
    });
  };
  Members members;
  members.push_back(start(0));
  auto first = start(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  first->signal(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  members.push_back(start(1));
  members.push_back(start(2));
  for (auto& member : members) EXPECT_EQ(member->hear(), "done");
}

}  // namespace
}  // namespace baton::parallel
