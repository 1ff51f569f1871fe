#include "transfer/unit_plan.h"

namespace baton::transfer {
namespace {

// Calls visit(entry, its description, unit, index of the unit within the range).
template <typename Visit>
void for_each_unit(const kv::PagedGeometry& geometry, kv::EntryRange range, Visit visit) {
  size_t index = 0;
  for (int e = range.first; e < range.end(); ++e) {
    const auto& entry = geometry.entries()[static_cast<size_t>(e)];
    for (int unit = 0; unit < entry.units; ++unit) visit(e, entry, unit, index++);
  }
}

}  // namespace

std::vector<std::span<const std::byte>> payload_pieces(const kv::PagedGeometry& g, std::span<const std::byte> block,
                                                       int tokens, kv::EntryRange entries) {
  std::vector<std::span<const std::byte>> pieces;
  const auto add = [&](int64_t offset, int64_t bytes) {
    const auto piece = block.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
    const bool adjacent = !pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data();
    if (!adjacent) return pieces.push_back(piece);
    pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
  };
  for (int e = entries.first; e < entries.end(); ++e) {
    const auto& entry = g.entries()[static_cast<size_t>(e)];
    if (tokens == g.block_size()) {
      add(g.entry_offset(e), g.entry_bytes(e));
      continue;
    }
    for (int part = 0; part < entry.parts; ++part) {
      for (int unit = 0; unit < entry.units; ++unit) add(g.unit_offset(e, part, unit), entry.token_bytes * tokens);
    }
  }
  return pieces;
}

transport::Moves payload_moves(const kv::PagedGeometry& g, int64_t to, int tokens, kv::EntryRange entries,
                               std::span<const uint64_t> checksums) {
  transport::Moves moves;
  for_each_unit(g, entries, [&](int e, const kv::CacheEntry& entry, int unit, size_t index) {
    const int64_t bytes = entry.token_bytes * tokens;
    const int64_t entry_begin = g.sealed_bytes(tokens, {entries.first, e - entries.first});
    moves.units.push_back({static_cast<uint32_t>(entry.parts), checksums[index]});
    for (int part = 0; part < entry.parts; ++part) {
      moves.runs.push_back(
          {entry_begin + (int64_t{part} * entry.units + unit) * bytes, to + g.unit_offset(e, part, unit), bytes});
    }
  });
  return moves;
}

}  // namespace baton::transfer
