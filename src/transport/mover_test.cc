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
  std::vector<UnitMove> units;
  Case() {
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7);
    for (int64_t u = 0; u < 4; ++u) {
      UnitMove unit{.runs = {{{u * 256, 2048 + u * 256, 200}, {1024 + u * 256, u * 256, 200}}}};
      Xxh3Stream hash;
      for (const auto& run : unit.runs) hash.update(std::span(source).subspan(run.from, run.bytes));
      unit.checksum = hash.digest();
      units.push_back(unit);
    }
  }
};

TEST(Mover, ShmAndMemoryStoreTheSame) {
  Case a, b;
  ASSERT_TRUE(ShmMover().move(a.units, a.source, a.target));
  ASSERT_TRUE(MemoryMover().move(b.units, b.source, b.target));
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.target[2048 + 3], a.source[3]);
}

TEST(Mover, AFlippedBitIsFoundInTheUnitThatHasIt) {
  Case c;
  c.source[2 * 256 + 199] ^= std::byte{1};
  const auto shm = ShmMover().move(c.units, c.source, c.target);
  ASSERT_FALSE(shm);
  EXPECT_EQ(shm.error().code(), Code::kDataLoss);
  EXPECT_EQ(shm.error().message(), "KV unit 2 fails its checksum");
  EXPECT_EQ(MemoryMover().move(c.units, c.source, c.target).error().message(), "KV unit 2 fails its checksum");
}

TEST(Mover, BytesSpoiledOnTheWayAreFound) {
  Case c;
  MemoryMover spoiling([](size_t unit, std::span<std::byte>, std::span<std::byte> values) {
    if (unit == 1) values[5] ^= std::byte{4};
  });
  EXPECT_EQ(spoiling.move(c.units, c.source, c.target).error().message(), "KV unit 1 fails its checksum");
}

TEST(Mover, RunsOutsideTheArenaStoreNothing) {
  Case c;
  c.units[3].runs[1].to = 4000;
  const std::vector<std::byte> before = c.target;
  EXPECT_EQ(ShmMover().move(c.units, c.source, c.target).error().code(), Code::kOutOfRange);
  c.units[3].runs[1] = {-8, 0, 16};
  EXPECT_EQ(MemoryMover().move(c.units, c.source, c.target).error().code(), Code::kOutOfRange);
  c.units[3].runs[1] = {INT64_MAX, 0, INT64_MAX};
  EXPECT_EQ(ShmMover().move(c.units, c.source, c.target).error().code(), Code::kOutOfRange);
  EXPECT_EQ(c.target, before);
}

}  // namespace
}  // namespace baton::transport
