#include "wire/layout_desc.h"

#include <algorithm>

namespace baton::wire {
namespace {

constexpr size_t kTextMax = 512;              // bytes of one name
constexpr int32_t kUnitsMax = 1 << 16;        // heads of an entry
constexpr int64_t kTokenBytesMax = 64 << 20;  // of one token of one part of one head

template <typename T>
Result<void> same(std::string_view what, const T& ours, const T& theirs) {
  if (ours == theirs) return {};
  return fail(Code::kMismatch, "{}: ours {}, theirs {}", what, ours, theirs);
}

const ModelEntry* find_entry(const std::vector<ModelEntry>& entries, int32_t index) {
  const auto it = std::ranges::lower_bound(entries, index, {}, &ModelEntry::index);
  return it != entries.end() && it->index == index ? &*it : nullptr;
}

Result<void> check_entries(std::string_view what, const std::vector<ModelEntry>& entries) {
  int32_t previous = -1;
  for (const auto& [index, whole] : entries) {
    if (index <= previous) return fail(Code::kOutOfRange, "{} entry {} comes after {}", what, index, previous);
    previous = index;
    const bool sane = whole.units >= 1 && whole.units <= kUnitsMax && (whole.parts == 1 || whole.parts == 2) &&
                      whole.token_bytes >= 1 && whole.token_bytes <= kTokenBytesMax;
    if (!sane) {
      return fail(Code::kOutOfRange, "{} entry {} has {} heads, {} parts, {} bytes per token", what, index, whole.units,
                  whole.parts, whole.token_bytes);
    }
  }
  return {};
}

Result<void> check_held(const RankDesc& rank, std::string_view what, const std::vector<HeldEntry>& held,
                        const std::vector<ModelEntry>& entries) {
  int32_t previous = -1;
  for (const auto& part : held) {
    const auto* entry = find_entry(entries, part.index);
    const bool sane = entry != nullptr && part.index > previous && part.first_unit >= 0 && part.units >= 1 &&
                      part.first_unit <= entry->whole.units && part.units <= entry->whole.units - part.first_unit;
    if (!sane) {
      return fail(Code::kOutOfRange, "rank {} holds {} heads from {} of {} entry {}, which has {}", rank.name,
                  part.units, part.first_unit, what, part.index, entry == nullptr ? 0 : entry->whole.units);
    }
    previous = part.index;
  }
  return {};
}

Result<void> same_entries(std::string_view what, const std::vector<ModelEntry>& ours,
                          const std::vector<ModelEntry>& theirs, bool both_whole) {
  if (both_whole) BATON_TRY(same(fmt::format("number of {} entries", what), ours.size(), theirs.size()));
  for (const auto& [index, entry] : ours) {
    const auto* other = find_entry(theirs, index);
    if (other == nullptr && !both_whole) continue;
    if (other == nullptr) return fail(Code::kMismatch, "{} entry {}: theirs is missing", what, index);
    const auto& their = other->whole;
    const auto of = [&](std::string_view property) { return fmt::format("{} of {} entry {}", property, what, index); };
    BATON_TRY(same(of("kind"), entry.kind, their.kind));
    BATON_TRY(same(of("dtype"), entry.dtype, their.dtype));
    BATON_TRY(same(of("heads"), entry.units, their.units));
    BATON_TRY(same(of("parts"), entry.parts, their.parts));
    BATON_TRY(same(of("bytes per token"), entry.token_bytes, their.token_bytes));
  }
  return {};
}

Result<void> one_divides(std::string_view what, int64_t ours, int64_t theirs) {
  if (ours % theirs == 0 || theirs % ours == 0) return {};
  return fail(Code::kMismatch, "{}: ours {}, theirs {}: one must be a multiple of the other", what, ours, theirs);
}

Result<std::string> bounded_text(ByteReader& reader, std::string_view what) {
  std::string text = reader.get_string();
  if (text.size() > kTextMax) {
    return fail(Code::kOutOfRange, "{} has {} bytes, at most {} are allowed", what, text.size(), kTextMax);
  }
  return text;
}

Result<uint32_t> bounded_count(ByteReader& reader, std::string_view what, size_t most) {
  const auto count = reader.get<uint32_t>();
  if (count > most) return fail(Code::kOutOfRange, "{} {}, at most {} are allowed", count, what, most);
  return count;
}

void put_entries(const std::vector<ModelEntry>& entries, ByteWriter& writer) {
  writer.put(static_cast<uint32_t>(entries.size()));
  for (const auto& [index, whole] : entries) {
    writer.put(index);
    writer.put_string(whole.kind);
    writer.put_string(whole.dtype);
    writer.put(whole.units);
    writer.put(whole.parts);
    writer.put(whole.token_bytes);
  }
}

Result<std::vector<ModelEntry>> get_entries(ByteReader& reader, std::string_view what) {
  BATON_TRY_ASSIGN(const auto count, bounded_count(reader, what, kLayoutEntriesMax));
  std::vector<ModelEntry> entries;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    auto& [index, whole] = entries.emplace_back();
    index = reader.get<int32_t>();
    BATON_TRY_ASSIGN(whole.kind, bounded_text(reader, "kind of an entry"));
    BATON_TRY_ASSIGN(whole.dtype, bounded_text(reader, "dtype of an entry"));
    whole.units = reader.get<int32_t>();
    whole.parts = reader.get<int32_t>();
    whole.token_bytes = reader.get<int64_t>();
  }
  return entries;
}

void put_held(const std::vector<HeldEntry>& held, ByteWriter& writer) {
  writer.put(static_cast<uint32_t>(held.size()));
  for (const auto& part : held) {
    writer.put(part.index);
    writer.put(part.first_unit);
    writer.put(part.units);
  }
}

Result<std::vector<HeldEntry>> get_held(ByteReader& reader) {
  BATON_TRY_ASSIGN(const auto count, bounded_count(reader, "entries of a rank", kLayoutEntriesMax));
  std::vector<HeldEntry> held;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    auto& part = held.emplace_back();
    part.index = reader.get<int32_t>();
    part.first_unit = reader.get<int32_t>();
    part.units = reader.get<int32_t>();
  }
  return held;
}

}  // namespace

Result<void> check_layout(const LayoutDesc& layout) {
  if (layout.block_size < 1 || layout.block_size > kBlockTokensMax || layout.context_size < 1 ||
      layout.context_size > kContextRanksMax) {
    return fail(Code::kOutOfRange, "blocks of {} tokens over {} context ranks (at most {} over {})", layout.block_size,
                layout.context_size, kBlockTokensMax, kContextRanksMax);
  }
  BATON_TRY(check_entries("cache", layout.entries));
  BATON_TRY(check_entries("state", layout.states));
  for (const auto& rank : layout.ranks) {
    if (rank.context_rank < 0 || rank.context_rank >= layout.context_size) {
      return fail(Code::kOutOfRange, "rank {} is context rank {} of {}", rank.name, rank.context_rank,
                  layout.context_size);
    }
    BATON_TRY(check_held(rank, "cache", rank.entries, layout.entries));
    BATON_TRY(check_held(rank, "state", rank.states, layout.states));
  }
  return {};
}

Result<void> compare_layout(const LayoutDesc& ours, const LayoutDesc& theirs) {
  const bool both_whole = ours.grid.processes == 1 && theirs.grid.processes == 1;
  BATON_TRY(one_divides("block size", ours.block_size, theirs.block_size));
  BATON_TRY(one_divides("tokens of a block over all context ranks", int64_t{ours.block_size} * ours.context_size,
                        int64_t{theirs.block_size} * theirs.context_size));
  BATON_TRY(same_entries("cache", ours.entries, theirs.entries, both_whole));
  return same_entries("state", ours.states, theirs.states, both_whole);
}

Result<void> check_claim(const GridClaim& claim, const GridDesc& grid, std::string_view whose) {
  const std::tuple<std::string_view, std::optional<int32_t>, int32_t> sizes[] = {{"tp_size", claim.tp, grid.tp},
                                                                                 {"pp_size", claim.pp, grid.pp},
                                                                                 {"pcp_size", claim.pcp, grid.pcp},
                                                                                 {"dcp_size", claim.dcp, grid.dcp}};
  for (const auto& [name, claimed, actual] : sizes) {
    if (claimed && *claimed != actual) {
      return fail(Code::kMismatch, "{}: kv_connector_extra_config says {} of the {}, it has {}", name, *claimed, whose,
                  actual);
    }
  }
  return {};
}

void encode_layout(const LayoutDesc& layout, ByteWriter& writer) {
  writer.put(layout.block_size);
  writer.put(layout.context_size);
  for (const int32_t size : {layout.grid.pp, layout.grid.pcp, layout.grid.tp, layout.grid.dcp, layout.grid.processes}) {
    writer.put(size);
  }
  put_entries(layout.entries, writer);
  put_entries(layout.states, writer);
  writer.put(static_cast<uint32_t>(layout.ranks.size()));
  for (const auto& rank : layout.ranks) {
    writer.put_string(rank.name);
    writer.put(rank.context_rank);
    put_held(rank.entries, writer);
    put_held(rank.states, writer);
  }
}

Result<LayoutDesc> decode_layout(ByteReader& reader) {
  LayoutDesc layout;
  layout.block_size = reader.get<int32_t>();
  layout.context_size = reader.get<int32_t>();
  for (int32_t* size : {&layout.grid.pp, &layout.grid.pcp, &layout.grid.tp, &layout.grid.dcp, &layout.grid.processes}) {
    *size = reader.get<int32_t>();
  }
  BATON_TRY_ASSIGN(layout.entries, get_entries(reader, "cache entries"));
  BATON_TRY_ASSIGN(layout.states, get_entries(reader, "state entries"));
  BATON_TRY_ASSIGN(const auto ranks, bounded_count(reader, "ranks", kRanksMax));
  for (uint32_t i = 0; i < ranks && reader.ok(); ++i) {
    auto& rank = layout.ranks.emplace_back();
    BATON_TRY_ASSIGN(rank.name, bounded_text(reader, "name of a rank"));
    rank.context_rank = reader.get<int32_t>();
    BATON_TRY_ASSIGN(rank.entries, get_held(reader));
    BATON_TRY_ASSIGN(rank.states, get_held(reader));
  }
  if (reader.ok()) BATON_TRY(check_layout(layout));
  return layout;
}

}  // namespace baton::wire
