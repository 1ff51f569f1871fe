#include "transfer/layerwise_units.h"

#include <algorithm>

namespace baton::transfer {

std::vector<std::span<const std::byte>> entry_pieces(const kv::PagedGeometry& geometry,
                                                     std::span<const std::byte> block, int tokens, int index) {
  std::vector<std::span<const std::byte>> pieces;
  const auto add = [&](int64_t offset, int64_t bytes) {
    pieces.push_back(block.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes)));
  };
  const auto& entry = geometry.entries()[static_cast<size_t>(index)];
  if (tokens == geometry.block_size()) {
    add(geometry.entry_offset(index), geometry.entry_bytes(index));
    return pieces;
  }
  for (int part = 0; part < entry.parts; ++part) {
    for (int unit = 0; unit < entry.units; ++unit) {
      add(geometry.unit_offset(index, part, unit), entry.token_bytes * tokens);
    }
  }
  return pieces;
}

void append_entry_moves(const kv::PagedGeometry& geometry, int64_t from, int64_t to, int tokens, int index,
                        std::span<const uint64_t> checksums, transport::Moves& moves) {
  const auto& entry = geometry.entries()[static_cast<size_t>(index)];
  const int64_t bytes = entry.token_bytes * tokens;
  for (int unit = 0; unit < entry.units; ++unit) {
    for (int part = 0; part < entry.parts; ++part) {
      moves.runs.push_back({.from = from + (int64_t{part} * entry.units + unit) * bytes,
                            .to = to + geometry.unit_offset(index, part, unit),
                            .bytes = bytes});
    }
    moves.units.push_back(
        {.run_count = static_cast<uint32_t>(entry.parts), .checksum = checksums[static_cast<size_t>(unit)]});
  }
}

Result<void> check_one_rank(const PullConnectorOptions& options) {
  if (options.ranks.size() == 1 && options.context_size == 1) return {};
  return fail(Code::kUnimplemented, "the layerwise connector pushes between engines of one rank each, not {}",
              options.ranks.size());
}

}  // namespace baton::transfer
