// From a plan's parts to runs of bytes.
#include <algorithm>

#include "transfer/reshard_plan.h"

namespace baton::transfer {
namespace {

constexpr int64_t kFrameBytes = 1 << 20;

// Where a unit's first token lies on D.
int64_t target_offset(const Holdings& to, const UnitTarget& target, int part, const PartCopy& copy,
                      const TokenPiece& piece, int64_t token_bytes) {
  const auto& geometry = to.geometry(target.rank, copy.state);
  return to.offset(target.rank, piece.to, copy.state) + geometry.unit_offset(target.entry, part, target.unit) +
         piece.to_token * token_bytes;
}

// One part (keys, or values) of the unit that is `entry` entries and `unit` units into its span. from: its first token.
uint32_t append_runs(const ReshardPlan& plan, const PartCopy& copy, const RouteSpan& span, int entry, int unit,
                     int part, int64_t from, int64_t token_bytes, PartMoves& out) {
  for (const auto& piece : copy.pieces) {
    const int64_t bytes = piece.tokens * token_bytes;
    transport::Run run{from + piece.from_token * token_bytes, transport::kNotStored, bytes};
    if (piece.to >= 0) {
      for (auto target : span.targets[static_cast<size_t>(piece.context_rank)]) {
        target.entry += entry;
        target.unit += unit;
        const int64_t to = target_offset(plan.to(), target, part, copy, piece, token_bytes);
        if (run.to == transport::kNotStored) {
          run.to = to;
        } else {
          out.repeats.push_back({run.to, to, bytes});
        }
      }
    }
    out.moves.runs.push_back(run);
  }
  return static_cast<uint32_t>(copy.pieces.size());
}

}  // namespace

void append_arena_moves(const ReshardPlan& plan, const PartCopy& copy, std::span<const uint64_t> checksums,
                        PartMoves& out) {
  const auto& geometry = plan.from().geometry(copy.rank, copy.state);
  const int64_t block = plan.from().offset(copy.rank, copy.from, copy.state);
  for (const auto& span : plan.spans(copy.rank, copy.state)) {
    for (uint32_t e = 0; e < span.from.entry_count; ++e) {
      const int entry = static_cast<int>(span.from.first_entry + e);
      const auto& kept = geometry.entries()[static_cast<size_t>(entry)];
      for (uint32_t u = 0; u < span.from.unit_count; ++u) {
        const int unit = static_cast<int>(span.from.first_unit + u);
        uint32_t runs = 0;
        for (int part = 0; part < kept.parts; ++part) {
          runs += append_runs(plan, copy, span, static_cast<int>(e), static_cast<int>(u), part,
                              block + geometry.unit_offset(entry, part, unit), kept.token_bytes, out);
        }
        out.moves.units.push_back({runs, checksums[static_cast<size_t>(geometry.first_unit(entry) + unit)]});
      }
    }
  }
}

int64_t span_bytes(const kv::PagedGeometry& geometry, const wire::UnitSpan& span, int tokens) {
  int64_t bytes = 0;
  for (uint32_t e = 0; e < span.entry_count; ++e) {
    const auto& kept = geometry.entries()[span.first_entry + e];
    bytes += kept.token_bytes * kept.parts * span.unit_count * tokens;
  }
  return bytes;
}

bool span_fits(const kv::PagedGeometry& geometry, const wire::UnitSpan& span) {
  const auto entries = static_cast<uint32_t>(geometry.entry_count());
  if (span.entry_count == 0 || span.unit_count == 0 || span.first_entry >= entries ||
      span.entry_count > entries - span.first_entry) {
    return false;
  }
  for (uint32_t e = 0; e < span.entry_count; ++e) {
    const auto units = static_cast<uint32_t>(geometry.entries()[span.first_entry + e].units);
    if (span.first_unit >= units || span.unit_count > units - span.first_unit) return false;
  }
  return true;
}

uint32_t frame_entries(const kv::PagedGeometry& geometry, const wire::UnitSpan& span, int tokens, uint32_t first) {
  int64_t bytes = 0;
  for (uint32_t e = first; e < span.entry_count; ++e) {
    bytes += span_bytes(geometry, {span.first_entry + e, 1, span.first_unit, span.unit_count}, tokens);
    if (bytes > kFrameBytes) return std::max(1u, e - first);
  }
  return span.entry_count - first;
}

std::vector<std::span<const std::byte>> payload_pieces(const kv::PagedGeometry& geometry,
                                                       std::span<const std::byte> block, int tokens,
                                                       const wire::UnitSpan& span) {
  std::vector<std::span<const std::byte>> pieces;
  for (uint32_t e = 0; e < span.entry_count; ++e) {
    const int entry = static_cast<int>(span.first_entry + e);
    const auto& kept = geometry.entries()[static_cast<size_t>(entry)];
    for (int part = 0; part < kept.parts; ++part) {
      for (uint32_t u = 0; u < span.unit_count; ++u) {
        const auto at = static_cast<size_t>(geometry.unit_offset(entry, part, static_cast<int>(span.first_unit + u)));
        const auto piece = block.subspan(at, static_cast<size_t>(kept.token_bytes * tokens));
        if (!pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data()) {
          pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
        } else {
          pieces.push_back(piece);
        }
      }
    }
  }
  return pieces;
}

void append_payload_moves(const ReshardPlan& plan, const PartCopy& copy, const RouteSpan& span, uint32_t first,
                          uint32_t count, std::span<const uint64_t> checksums, PartMoves& out, int64_t from) {
  const auto& geometry = plan.from().geometry(copy.rank, copy.state);
  size_t index = 0;
  for (uint32_t e = first; e < first + count; ++e) {
    const auto& kept = geometry.entries()[span.from.first_entry + e];
    const int64_t unit_bytes = kept.token_bytes * copy.tokens;
    for (uint32_t u = 0; u < span.from.unit_count; ++u) {
      uint32_t runs = 0;
      for (int part = 0; part < kept.parts; ++part) {
        const int64_t at = from + (int64_t{part} * span.from.unit_count + u) * unit_bytes;
        runs +=
            append_runs(plan, copy, span, static_cast<int>(e), static_cast<int>(u), part, at, kept.token_bytes, out);
      }
      out.moves.units.push_back({runs, checksums[index++]});
    }
    from += unit_bytes * kept.parts * span.from.unit_count;
  }
}

}  // namespace baton::transfer
