#include "parallel/net/meeting_frames.h"

#include <gtest/gtest.h>

#include <random>

#include "parallel/shm/segment.h"

namespace baton::parallel {
namespace {

TEST(MeetingFrames, WhatIsWrittenIsRead) {
  const Hello hello{.group = "g", .fingerprint = "f", .rank = 3, .size = 4, .host = "::1", .port = 80};
  const auto hello_again = Hello::decode(hello.encode());
  ASSERT_TRUE(hello_again);
  EXPECT_EQ(hello_again->encode(), hello.encode());
  const MeetingTable table{.cookie = std::string(32, 'c'),
                           .places = {{.host = "", .port = 1}, {.host = "b", .port = 2}}};
  const auto table_again = MeetingTable::decode(table.encode());
  ASSERT_TRUE(table_again);
  EXPECT_EQ(table_again->encode(), table.encode());
  const auto reason = Reason::decode(Reason{.code = Code::kMismatch, .try_again = true, .message = "m"}.encode());
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->code, Code::kMismatch);
  EXPECT_TRUE(reason->try_again);
  const auto lane = LaneHello::decode(LaneHello{.rank = 9, .lane = LaneKind::kMessages}.encode());
  ASSERT_TRUE(lane);
  EXPECT_EQ(lane->rank, 9);
}

// Cut, stretched, altered or random: an error or a value within its bounds, never more.
TEST(MeetingFrames, BrokenBytesAreErrors) {
  std::mt19937 random(7);
  const std::vector<std::vector<std::byte>> good = {
      Hello{.group = "group", .fingerprint = "print", .rank = 1, .size = 2, .host = "h", .port = 5}.encode(),
      MeetingTable{.cookie = "cookie", .places = {{.host = "a", .port = 1}, {.host = "b", .port = 2}}}.encode(),
      Reason{.code = Code::kUnavailable, .message = "because"}.encode(),
      LaneHello{.rank = 1, .lane = LaneKind::kControl}.encode()};
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = good[random() % good.size()];
    if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 8));
    for (int i = static_cast<int>(random() % 4); i > 0 && !bytes.empty(); --i) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (const auto hello = Hello::decode(bytes)) EXPECT_TRUE(hello->port > 0 && hello->port < 65536);
    if (const auto reason = Reason::decode(bytes)) EXPECT_LE(reason->code, Code::kInternal);
    if (const auto lane = LaneHello::decode(bytes)) EXPECT_LE(lane->lane, LaneKind::kMessages);
    if (const auto table = MeetingTable::decode(bytes)) EXPECT_LE(table->places.size(), bytes.size());
    ByteReader reader(bytes);
    SegmentPlace::get(reader);
  }
  for (const auto& whole : good) {
    for (size_t size = 0; size < whole.size(); ++size) {
      const auto cut = std::span(whole).first(size);
      EXPECT_FALSE(Hello::decode(cut));
    }
  }
}

}  // namespace
}  // namespace baton::parallel
