// How members meet, and who is turned away: members are threads here.
#include "parallel/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/mesh_test_support.h"
#include "parallel/process_test_support.h"

namespace baton::parallel {
namespace {

using testing::HasSubstr;

std::vector<RendezvousOptions> group(int port, int size) {
  std::vector<RendezvousOptions> members;
  for (int rank = 0; rank < size; ++rank) members.push_back(loopback_group(port, size, rank));
  return members;
}

void expect_all_work(std::vector<MeetResult>& members, int rounds) {
  std::vector<std::thread> threads;
  for (auto& member : members) {
    ASSERT_TRUE(member) << member.error().to_string();
    threads.emplace_back([&] { EXPECT_EQ(use_everything(**member, rounds), ""); });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Rendezvous, AllMeetWhoeverComesFirst) {
  const int port = free_port();
  auto options = group(port, 4);
  options[1].secret = options[2].secret = options[3].secret = options[0].secret = "open sesame";
  std::vector<MeetResult> members(4);
  std::vector<std::thread> threads;
  for (const size_t rank : {3U, 1U, 0U, 2U}) {
    threads.emplace_back([&, rank] { members[rank] = meet(options[rank]); });
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
  }
  for (auto& thread : threads) thread.join();
  expect_all_work(members, 5);
  EXPECT_EQ((*members[2])->rank(), 2);
  EXPECT_EQ((*members[2])->size(), 4);
  EXPECT_EQ((*members[2])->kind(), "shared memory");
}

TEST(Rendezvous, MemoryIsSharedByThoseOfOneHostWhoWantIt) {
  auto options = group(free_port(), 5);
  options[1].allow_shm = false;
  options[3].host = options[4].host = "another";
  auto members = meet_all(options);
  expect_all_work(members, 10);
  for (const size_t rank : {0U, 2U, 3U, 4U}) EXPECT_EQ((*members[rank])->kind(), "shared memory and tcp") << rank;
  EXPECT_EQ((*members[1])->kind(), "tcp");
}

TEST(Rendezvous, OneAloneNeedsNoPort) {
  auto alone = meet({.address = "", .port = 0, .size = 1, .rank = 0});
  ASSERT_TRUE(alone) << alone.error().to_string();
  EXPECT_EQ(use_everything(**alone, 3), "");
}

TEST(Rendezvous, TwoGroupsOfOneHostDontMix) {
  auto both = group(free_port(), 2);
  const auto second = group(free_port(), 2);
  both.insert(both.end(), second.begin(), second.end());
  auto members = meet_all(both);
  expect_all_work(members, 5);
}

TEST(Rendezvous, WhoIsMissingIsSaidToAllThatCame) {
  auto options = group(free_port(), 4);
  for (auto& each : options) each.deadline = std::chrono::milliseconds(600);
  options.erase(options.begin() + 2);
  const auto members = meet_all(options);
  for (const auto& member : members) {
    ASSERT_FALSE(member);
    EXPECT_EQ(member.error().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(member.error().message(), HasSubstr("3 of 4 processes came")) << member.error().message();
    EXPECT_THAT(member.error().message(), HasSubstr("missing: rank 2")) << member.error().message();
  }
}

TEST(Rendezvous, WithoutRankZeroTheOthersSayWhereTheyLooked) {
  auto options = loopback_group(free_port(), 2, 1);
  options.deadline = std::chrono::milliseconds(300);
  const auto member = meet(options);
  ASSERT_FALSE(member);
  EXPECT_EQ(member.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(member.error().message(), HasSubstr("rank 0 was not met at 127.0.0.1:"));
}

// Rank 0 waits for rank 1 of 2; `change` spoils a member that comes before the right one.
template <typename Change>
Status turned_away(const Change& change) {
  const int port = free_port();
  auto options = group(port, 2);
  MeetResult host, right;
  std::thread hosting([&] { host = meet(options[0]); });
  auto wrong_options = loopback_group(port, 2, 1);
  change(wrong_options);
  const auto wrong = meet(wrong_options);
  std::thread coming([&] { right = meet(options[1]); });
  hosting.join();
  coming.join();
  EXPECT_TRUE(host && right) << "one who was turned away disturbed the others";
  return wrong ? Status(Code::kInternal, "it was let in") : wrong.error();
}

TEST(Rendezvous, WhatDoesNotFitIsRefusedWithBothValues) {
  auto status = turned_away([](auto& o) { o.fingerprint = "model b, tp4"; });
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("'model b, tp4', rank 0 has 'model a, tp2'"));
  status = turned_away([](auto& o) { o.size = 3; });
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("number of processes: process 1"));
  status = turned_away([](auto& o) { o.group = "other"; });
  EXPECT_EQ(status.code(), Code::kMismatch);
  status = turned_away([](auto& o) { o.secret = "guess"; });
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_THAT(status.message(), HasSubstr("secret"));
}

TEST(Rendezvous, TwoOfOneRankAreToldSo) {
  const int port = free_port();
  auto options = group(port, 3);
  std::vector<MeetResult> members(3);
  std::vector<std::thread> threads;
  for (const size_t rank : {0U, 1U}) threads.emplace_back([&, rank] { members[rank] = meet(options[rank]); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto twin = meet(options[1]);
  ASSERT_FALSE(twin);
  EXPECT_EQ(twin.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(twin.error().message(), HasSubstr("rank 1 is there already"));
  threads.emplace_back([&] { members[2] = meet(options[2]); });
  for (auto& thread : threads) thread.join();
  expect_all_work(members, 2);
}

TEST(Rendezvous, LateComersAreToldThatTheGroupRunsAndBrokenGroupsMeetAgain) {
  const int port = free_port();
  const auto options = group(port, 2);
  for (int time = 0; time < 3; ++time) {
    auto members = meet_all(options);
    expect_all_work(members, 2);
    const auto late = meet(options[1]);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code(), Code::kFailedPrecondition);
    EXPECT_THAT(late.error().message(), HasSubstr("the group runs"));
    EXPECT_FALSE((*members[0])->failure());
    (*members[1])->leave("round over");
    // One that comes between the end of the group and the next meeting waits for that one.
    if (time == 1) {
      const std::vector<Mesh::Bytes> to(2);
      std::vector<MessageBytes> from;
      EXPECT_FALSE((*members[0])->exchange(to, from));
      MeetResult early;
      std::thread coming([&] { early = meet(options[1]); });
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      members.clear();
      auto host = meet(options[0]);
      coming.join();
      ASSERT_TRUE(host && early);
    }
  }
}

TEST(Rendezvous, ATakenPortIsNamed) {
  const int port = free_port();
  auto members = meet_all(group(port, 2));
  const auto second = meet(loopback_group(port, 2, 0));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr(fmt::format("127.0.0.1:{} is taken", port)));
}

TEST(Rendezvous, WrongOptionsAreRefused) {
  for (const auto& wrong :
       std::vector<RendezvousOptions>{{.address = "127.0.0.1", .port = 1, .size = 0},
                                      {.address = "127.0.0.1", .port = 1, .size = 2, .rank = 2},
                                      {.address = "127.0.0.1", .port = 0, .size = 2, .rank = 0},
                                      {.address = "", .port = 1, .size = 2, .rank = 0},
                                      {.address = "192.0.2.77", .port = 29500, .size = 2, .rank = 0}}) {
    const auto refused = meet(wrong);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument) << refused.error().to_string();
  }
}

TEST(Rendezvous, StrangersBytesDisturbNobody) {
  const int port = free_port();
  MeetResult host, member;
  std::thread hosting([&] { host = meet(loopback_group(port, 2, 0)); });
  std::vector<int> strangers;
  while (strangers.size() < 300) {
    const int stranger = connect_raw(port);
    if (stranger < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    strangers.push_back(stranger);
    const std::string words[] = {"GET / HTTP/1.1\r\n\r\n", std::string(5000, '\xff'), ""};
    const auto& word = words[strangers.size() % 3];
    if (!word.empty()) ::send(stranger, word.data(), word.size(), MSG_NOSIGNAL);
  }
  member = meet(loopback_group(port, 2, 1));
  hosting.join();
  ASSERT_TRUE(host && member);
  for (const int stranger : strangers) ::close(stranger);
  const int late = connect_raw(port);
  ASSERT_GE(late, 0);
  ::send(late, "garbage", 7, MSG_NOSIGNAL);
  std::vector<MeetResult> members;
  members.push_back(std::move(host));
  members.push_back(std::move(member));
  expect_all_work(members, 3);
  ::close(late);
}

}  // namespace
}  // namespace baton::parallel
