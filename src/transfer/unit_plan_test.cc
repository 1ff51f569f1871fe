#include "transfer/unit_plan.h"

#include <gtest/gtest.h>

#include "kv/seal_table.h"
#include "transport/memory/memory_mover.h"

namespace baton::transfer {
namespace {

constexpr kv::PagedGeometry kGeometry{.layers = 5, .kv_heads = 3, .head_dim = 8, .block_size = 4};

std::vector<std::byte> noise(size_t bytes) {
  std::vector<std::byte> values(bytes);
  for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  return values;
}
std::vector<uint64_t> checksums_of(const std::vector<std::byte>& arena, int64_t block, int tokens) {
  std::vector<uint64_t> sums;
  for (int layer = 0; layer < kGeometry.layers; ++layer) {
    for (int head = 0; head < kGeometry.kv_heads; ++head) {
      sums.push_back(kv::unit_checksum(kGeometry, arena.data() + block * kGeometry.block_bytes(), layer, head, tokens));
    }
  }
  return sums;
}
// Every sealed value of block 2 of `from` is in block 1 of `to`.
void expect_moved(const std::vector<std::byte>& from, const std::vector<std::byte>& to, int tokens) {
  for (int layer = 0; layer < kGeometry.layers; ++layer) {
    for (int kv = 0; kv < 2; ++kv) {
      for (int head = 0; head < kGeometry.kv_heads; ++head) {
        for (int64_t byte = 0; byte < kGeometry.sealed_bytes(tokens); ++byte) {
          ASSERT_EQ(from[kGeometry.offset(2, layer, kv, head) + byte], to[kGeometry.offset(1, layer, kv, head) + byte]);
        }
      }
    }
  }
}

class UnitPlanTest : public testing::TestWithParam<int> {};

TEST_P(UnitPlanTest, ArenaMovesCoverTheSealedTokens) {
  const int tokens = GetParam();
  const auto source = noise(kGeometry.block_bytes() * 3);
  std::vector<std::byte> target(kGeometry.block_bytes() * 2);
  std::vector<transport::UnitMove> moves;
  append_arena_moves(kGeometry, 2, 1, tokens, checksums_of(source, 2, tokens), moves);
  ASSERT_TRUE(transport::MemoryMover().move(moves, source, target));
  expect_moved(source, target, tokens);
}

TEST_P(UnitPlanTest, APayloadIsTakenApartAsItWasPutTogether) {
  const int tokens = GetParam();
  const auto source = noise(kGeometry.block_bytes() * 3);
  const auto sums = checksums_of(source, 2, tokens);
  std::vector<std::byte> target(kGeometry.block_bytes() * 2);
  for (const LayerRange layers : {LayerRange{0, 2}, LayerRange{2, 3}}) {
    std::vector<std::byte> payload;
    for (const auto& piece : payload_pieces(kGeometry, source, 2, tokens, layers)) {
      payload.insert(payload.end(), piece.begin(), piece.end());
    }
    const auto first = sums.begin() + kGeometry.unit_index(layers.first, 0);
    const std::vector<uint64_t> part(first, first + int64_t{layers.count} * kGeometry.kv_heads);
    ASSERT_TRUE(transport::MemoryMover().move(payload_moves(kGeometry, 1, tokens, layers, part), payload, target));
  }
  expect_moved(source, target, tokens);
}

INSTANTIATE_TEST_SUITE_P(Tokens, UnitPlanTest, testing::Values(1, 3, 4));

TEST(UnitPlan, FramesAreAboutAMegabyte) {
  kv::PagedGeometry smol{.layers = 30, .kv_heads = 3, .head_dim = 64, .block_size = 16};
  EXPECT_EQ(layers_per_frame(smol, 16), 30);
  kv::PagedGeometry large{.layers = 61, .kv_heads = 8, .head_dim = 128, .block_size = 768};
  EXPECT_EQ(layers_per_frame(large, 768), 1);
}

}  // namespace
}  // namespace baton::transfer
