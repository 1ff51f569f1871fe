#include "transfer/unit_plan.h"

#include <gtest/gtest.h>

#include "kv/seal_table.h"
#include "transport/memory/memory_mover.h"

namespace baton::transfer {
namespace {

// Keys and values of three heads, a latent, index keys whose bytes end between two entries' borders, keys and values.
const kv::PagedGeometry kGeometry(4,
                                  {{.kind = "keys_values", .dtype = "bf16", .units = 3, .parts = 2, .token_bytes = 16},
                                   {.kind = "latent", .dtype = "f8e4m3", .token_bytes = 656},
                                   {.kind = "index_keys", .dtype = "i8", .token_bytes = 130},
                                   {.kind = "keys_values", .dtype = "bf16", .units = 1, .parts = 2, .token_bytes = 32},
                                   {.kind = "latent", .dtype = "bf16", .token_bytes = 64}});

std::vector<std::byte> noise(size_t bytes) {
  std::vector<std::byte> values(bytes);
  for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  return values;
}
std::vector<uint64_t> checksums_of(const std::vector<std::byte>& arena, int64_t block, int tokens) {
  std::vector<uint64_t> sums;
  for (int entry = 0; entry < kGeometry.entry_count(); ++entry) {
    for (int unit = 0; unit < kGeometry.entries()[entry].units; ++unit) {
      sums.push_back(kv::unit_checksum(kGeometry, arena.data() + block * kGeometry.block_bytes(), entry, unit, tokens));
    }
  }
  return sums;
}
// Every sealed value of block 2 of `from` is in block 1 of `to`.
void expect_moved(const std::vector<std::byte>& from, const std::vector<std::byte>& to, int tokens) {
  for (int e = 0; e < kGeometry.entry_count(); ++e) {
    const auto& entry = kGeometry.entries()[e];
    for (int part = 0; part < entry.parts; ++part) {
      for (int unit = 0; unit < entry.units; ++unit) {
        const int64_t at = kGeometry.unit_offset(e, part, unit);
        for (int64_t byte = at; byte < at + entry.token_bytes * tokens; ++byte) {
          ASSERT_EQ(from[2 * kGeometry.block_bytes() + byte], to[kGeometry.block_bytes() + byte]);
        }
      }
    }
  }
}

class UnitPlanTest : public testing::TestWithParam<int> {};

TEST_P(UnitPlanTest, APayloadIsTakenApartAsItWasPutTogether) {
  const int tokens = GetParam();
  const auto source = noise(kGeometry.block_bytes() * 3);
  const auto sums = checksums_of(source, 2, tokens);
  std::vector<std::byte> target(kGeometry.block_bytes() * 2);
  for (const kv::EntryRange entries : {kv::EntryRange{0, 2}, kv::EntryRange{2, 3}}) {
    std::vector<std::byte> payload;
    const auto block = std::span(source).subspan(2 * kGeometry.block_bytes());
    for (const auto& piece : payload_pieces(kGeometry, block, tokens, entries)) {
      payload.insert(payload.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(static_cast<int64_t>(payload.size()), kGeometry.sealed_bytes(tokens, entries));
    const auto first = sums.begin() + kGeometry.first_unit(entries.first);
    const std::vector<uint64_t> part(first, first + kGeometry.unit_count(entries));
    const auto moves = payload_moves(kGeometry, kGeometry.block_bytes(), tokens, entries, part);
    ASSERT_TRUE(transport::MemoryMover().move(moves, payload, target));
  }
  expect_moved(source, target, tokens);
}

INSTANTIATE_TEST_SUITE_P(Tokens, UnitPlanTest, testing::Values(1, 3, 4));

TEST(UnitPlan, AFullBlockWithoutGapsIsOnePiece) {
  const auto smol = kv::uniform_geometry({.layers = 30, .kv_heads = 3, .head_dim = 64, .block_size = 16});
  const std::vector<std::byte> block(static_cast<size_t>(smol.block_bytes()));
  EXPECT_EQ(payload_pieces(smol, block, 16, {3, 7}).size(), 1u);
  EXPECT_EQ(payload_pieces(smol, block, 15, {3, 1}).size(), 6u);
}

}  // namespace
}  // namespace baton::transfer
