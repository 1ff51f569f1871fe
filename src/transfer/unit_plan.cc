#include "transfer/unit_plan.h"

#include <algorithm>

namespace baton::transfer {
namespace {

constexpr int64_t kFrameBytes = 1 << 20;

}  // namespace

void append_arena_moves(const kv::PagedGeometry& g, int64_t from, int64_t to, int tokens,
                        std::span<const uint64_t> checksums, std::vector<transport::UnitMove>& moves) {
  const int64_t bytes = g.sealed_bytes(tokens);
  for (int layer = 0; layer < g.layers; ++layer) {
    for (int head = 0; head < g.kv_heads; ++head) {
      moves.push_back({.runs = {{{g.offset(from, layer, 0, head), g.offset(to, layer, 0, head), bytes},
                                 {g.offset(from, layer, 1, head), g.offset(to, layer, 1, head), bytes}}},
                       .checksum = checksums[static_cast<size_t>(g.unit_index(layer, head))]});
    }
  }
}

std::vector<std::span<const std::byte>> payload_pieces(const kv::PagedGeometry& g, std::span<const std::byte> arena,
                                                       int64_t block, int tokens, LayerRange layers) {
  if (tokens == g.block_size) {
    return {arena.subspan(static_cast<size_t>(g.offset(block, layers.first, 0, 0)),
                          static_cast<size_t>(g.layer_bytes() * layers.count))};
  }
  std::vector<std::span<const std::byte>> pieces;
  pieces.reserve(static_cast<size_t>(layers.count) * 2 * static_cast<size_t>(g.kv_heads));
  for (int layer = layers.first; layer < layers.first + layers.count; ++layer) {
    for (int kv = 0; kv < 2; ++kv) {
      for (int head = 0; head < g.kv_heads; ++head) {
        pieces.push_back(arena.subspan(static_cast<size_t>(g.offset(block, layer, kv, head)),
                                       static_cast<size_t>(g.sealed_bytes(tokens))));
      }
    }
  }
  return pieces;
}

std::vector<transport::UnitMove> payload_moves(const kv::PagedGeometry& g, int64_t to, int tokens, LayerRange layers,
                                               std::span<const uint64_t> checksums) {
  const int64_t bytes = g.sealed_bytes(tokens);
  std::vector<transport::UnitMove> moves;
  moves.reserve(checksums.size());
  for (int i = 0; i < layers.count; ++i) {
    const int layer = layers.first + i;
    const int64_t keys = int64_t{i} * 2 * g.kv_heads * bytes;
    const int64_t values = keys + g.kv_heads * bytes;
    for (int head = 0; head < g.kv_heads; ++head) {
      moves.push_back({.runs = {{{keys + head * bytes, g.offset(to, layer, 0, head), bytes},
                                 {values + head * bytes, g.offset(to, layer, 1, head), bytes}}},
                       .checksum = checksums[static_cast<size_t>(g.unit_index(i, head))]});
    }
  }
  return moves;
}

int layers_per_frame(const kv::PagedGeometry& g, int tokens) {
  const int64_t layer_bytes = g.sealed_bytes(tokens) * 2 * g.kv_heads;
  return static_cast<int>(std::clamp<int64_t>(kFrameBytes / std::max<int64_t>(1, layer_bytes), 1, g.layers));
}

}  // namespace baton::transfer
