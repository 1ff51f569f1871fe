#include "transport/mover.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/hash.h"
#include "transport/memory/memory_mover.h"
#include "transport/shm/shm_mover.h"

namespace baton::transport {
namespace {

struct Case {
  std::vector<std::byte> source = std::vector<std::byte>(4096);
  std::vector<std::byte> target = std::vector<std::byte>(4096);
  Moves moves;
  Case() {
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7);
    for (int64_t u = 0; u < 4; ++u) {
      Xxh3Stream hash;
      for (const Run run : {Run{u * 256, 2048 + u * 256, 200}, Run{1024 + u * 256, u * 256, 200}}) {
        hash.update(std::span(source).subspan(run.from, run.bytes));
        moves.runs.push_back(run);
      }
      moves.units.push_back({2, hash.digest()});
    }
  }
};

TEST(Mover, ShmAndMemoryStoreTheSame) {
  Case a, b;
  ASSERT_TRUE(ShmMover().move(a.moves, a.source, a.target));
  ASSERT_TRUE(MemoryMover().move(b.moves, b.source, b.target));
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.target[2048 + 3], a.source[3]);
}

TEST(Mover, AFlippedBitIsFoundInTheUnitThatHasIt) {
  Case c;
  c.source[2 * 256 + 199] ^= std::byte{1};
  const auto shm = ShmMover().move(c.moves, c.source, c.target);
  ASSERT_FALSE(shm);
  EXPECT_EQ(shm.error().code(), Code::kDataLoss);
  EXPECT_EQ(shm.error().message(), "KV unit 2 fails its checksum");
  EXPECT_EQ(MemoryMover().move(c.moves, c.source, c.target).error().message(), "KV unit 2 fails its checksum");
}

TEST(Mover, BytesSpoiledOnTheWayAreFound) {
  Case c;
  MemoryMover spoiling([](size_t unit, size_t run, std::span<std::byte> stored) {
    if (unit == 1 && run == 1) stored[5] ^= std::byte{4};
  });
  EXPECT_EQ(spoiling.move(c.moves, c.source, c.target).error().message(), "KV unit 1 fails its checksum");
}

TEST(Mover, WhatIsNotStoredIsCheckedAllTheSame) {
  for (const bool memory : {false, true}) {
    const auto move = [&](Case& c) {
      return memory ? MemoryMover().move(c.moves, c.source, c.target) : ShmMover().move(c.moves, c.source, c.target);
    };
    Case c;
    c.moves.runs[3].to = kNotStored;  // the second of unit 1
    ASSERT_TRUE(move(c));
    EXPECT_EQ(c.target[256 + 3], std::byte{0});
    EXPECT_EQ(c.target[2048 + 256 + 3], c.source[256 + 3]);
    c.source[1024 + 256 + 7] ^= std::byte{1};
    EXPECT_EQ(move(c).error().message(), "KV unit 1 fails its checksum");
  }
}

TEST(Mover, RunsOutsideTheArenaStoreNothing) {
  Case c;
  c.moves.runs[7].to = 4000;
  const std::vector<std::byte> before = c.target;
  EXPECT_EQ(ShmMover().move(c.moves, c.source, c.target).error().code(), Code::kOutOfRange);
  c.moves.runs[7] = {-8, 0, 16};
  EXPECT_EQ(MemoryMover().move(c.moves, c.source, c.target).error().code(), Code::kOutOfRange);
  c.moves.runs[7] = {INT64_MAX, 0, INT64_MAX};
  EXPECT_EQ(ShmMover().move(c.moves, c.source, c.target).error().code(), Code::kOutOfRange);
  EXPECT_EQ(c.target, before);
}

}  // namespace
}  // namespace baton::transport
