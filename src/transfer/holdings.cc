#include "transfer/holdings.h"

#include <algorithm>
#include <map>

namespace baton::transfer {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 46;  // of all ranks of a process

using Entries = std::map<int32_t, wire::LayoutEntry>;  // by index in the model

// Adds what a rank says of the model's entries; false when another rank says otherwise.
bool add_entries(const kv::PagedGeometry& geometry, const std::vector<kv::EntryPart>& parts, Entries& entries) {
  if (std::ssize(parts) != geometry.entry_count()) return false;
  for (size_t e = 0; e < parts.size(); ++e) {
    auto whole = geometry.entries()[e];
    const auto& part = parts[e];
    const bool inside = part.first_unit >= 0 && part.first_unit + whole.units <= part.total_units;
    const bool ascending = e == 0 || part.index > parts[e - 1].index;
    whole.units = part.total_units;
    if (!inside || !ascending || entries.try_emplace(part.index, whole).first->second != whole) return false;
  }
  return true;
}

std::vector<wire::ModelEntry> model_entries(const Holdings& holdings, bool state) {
  Entries entries;
  for (const auto& rank : holdings.ranks) {
    add_entries(state ? rank.layout.states : rank.layout.blocks, state ? rank.state_parts : rank.entry_parts, entries);
  }
  std::vector<wire::ModelEntry> list;
  for (const auto& [index, whole] : entries) list.push_back({index, whole});
  return list;
}

std::vector<wire::HeldEntry> held_entries(const kv::PagedGeometry& geometry, const std::vector<kv::EntryPart>& parts) {
  std::vector<wire::HeldEntry> held;
  for (size_t e = 0; e < parts.size(); ++e) {
    held.push_back({parts[e].index, parts[e].first_unit, geometry.entries()[e].units});
  }
  return held;
}

struct RankPart {
  kv::PagedGeometry geometry;
  std::vector<kv::EntryPart> parts;
};

RankPart part_of(int block_size, const std::vector<wire::HeldEntry>& held, const std::vector<wire::ModelEntry>& whole) {
  RankPart part;
  std::vector<kv::CacheEntry> entries;
  for (const auto& [index, first_unit, units] : held) {
    const auto& model = *std::ranges::lower_bound(whole, index, {}, &wire::ModelEntry::index);
    part.parts.push_back({index, first_unit, model.whole.units});
    entries.push_back(model.whole);
    entries.back().units = units;
  }
  if (!entries.empty()) part.geometry = kv::PagedGeometry(block_size, std::move(entries));
  return part;
}

// Bytes of blocks and of their seal records don't overflow: 4096 entries of 2^16 heads of 2^26 bytes would, so they are
// counted in doubles.
bool small_enough(const std::vector<wire::HeldEntry>& held, const std::vector<wire::ModelEntry>& whole,
                  int64_t block_size, int64_t count, double& bytes) {
  bytes += 64 * static_cast<double>(count);
  for (const auto& part : held) {
    const auto& entry = std::ranges::lower_bound(whole, part.index, {}, &wire::ModelEntry::index)->whole;
    const double block =
        static_cast<double>(entry.token_bytes) * part.units * entry.parts * static_cast<double>(block_size) +
        8.0 * part.units;
    bytes += block * static_cast<double>(std::max<int64_t>(count, 1));
  }
  return bytes <= static_cast<double>(kBytesMax);
}

void place_arenas(Holdings& holdings) {
  for (const auto& rank : holdings.ranks) holdings.arenas.add(rank.layout);
}

}  // namespace

Result<Holdings> make_holdings(std::vector<kv::RankCache> ranks, int context_size) {
  Holdings made{.ranks = std::move(ranks), .context_size = context_size, .arenas = {}};
  if (made.ranks.empty()) return fail(Code::kInvalidArgument, "hand-off: no ranks");
  Entries entries, states;
  made.block_count = made.ranks[0].layout.block_count;
  made.slot_count = made.ranks[0].layout.slot_count;
  for (const auto& rank : made.ranks) {
    const auto& layout = rank.layout;
    const int block_size = layout.blocks.block_size();
    if (made.block_size == 0) made.block_size = block_size;
    const bool fits = (block_size == 0 || block_size == made.block_size) && layout.block_count == made.block_count &&
                      layout.slot_count == made.slot_count && rank.context_rank >= 0 &&
                      rank.context_rank < context_size;
    if (!fits || !add_entries(layout.blocks, rank.entry_parts, entries) ||
        !add_entries(layout.states, rank.state_parts, states)) {
      return fail(Code::kInvalidArgument,
                  "hand-off: rank {} (context rank {} of {}, {} blocks of {}, {} slots) doesn't go with the others",
                  rank.name, rank.context_rank, context_size, layout.block_count, block_size, layout.slot_count);
    }
  }
  if (entries.empty()) {
    return fail(Code::kInvalidArgument,
                "hand-off: the layers of this process keep no KV, only recurrent state, and such a process can't hand "
                "over; give each host a layer with attention (VLLM_PP_LAYER_PARTITION)");
  }
  if (made.block_count <= 0) return fail(Code::kInvalidArgument, "hand-off: {} blocks of KV", made.block_count);
  place_arenas(made);
  return made;
}

kv::RankCache whole_cache(kv::CacheLayout layout) {
  const auto parts = [](const kv::PagedGeometry& geometry) {
    std::vector<kv::EntryPart> whole;
    for (int e = 0; e < geometry.entry_count(); ++e) {
      whole.push_back({.index = e, .total_units = geometry.entries()[static_cast<size_t>(e)].units});
    }
    return whole;
  };
  kv::RankCache rank{.layout = std::move(layout), .entry_parts = {}, .state_parts = {}, .name = "pp0 pcp0 tp0"};
  rank.entry_parts = parts(rank.layout.blocks);
  rank.state_parts = parts(rank.layout.states);
  return rank;
}

wire::LayoutDesc describe(const Holdings& holdings, const wire::GridDesc& grid) {
  wire::LayoutDesc layout{.block_size = holdings.block_size,
                          .context_size = holdings.context_size,
                          .grid = grid,
                          .entries = model_entries(holdings, false),
                          .states = model_entries(holdings, true),
                          .ranks = {}};
  for (const auto& rank : holdings.ranks) {
    layout.ranks.push_back({.name = rank.name,
                            .context_rank = rank.context_rank,
                            .entries = held_entries(rank.layout.blocks, rank.entry_parts),
                            .states = held_entries(rank.layout.states, rank.state_parts)});
  }
  return layout;
}

Result<Holdings> holdings_of(const wire::LayoutDesc& layout, int64_t block_count, int64_t slot_count) {
  Holdings made{.ranks = {},
                .context_size = layout.context_size,
                .block_size = layout.block_size,
                .block_count = block_count,
                .slot_count = slot_count,
                .arenas = {}};
  double bytes = 0;
  for (const auto& desc : layout.ranks) {
    if (block_count < 0 || slot_count < 0 ||
        !small_enough(desc.entries, layout.entries, layout.block_size, block_count, bytes) ||
        !small_enough(desc.states, layout.states, 1, slot_count, bytes)) {
      return fail(Code::kOutOfRange, "{} blocks and {} slots of rank {} have more bytes than a host", block_count,
                  slot_count, desc.name);
    }
    auto blocks = part_of(layout.block_size, desc.entries, layout.entries);
    auto states = part_of(1, desc.states, layout.states);
    made.ranks.push_back({.layout = {.blocks = std::move(blocks.geometry),
                                     .states = std::move(states.geometry),
                                     .block_count = block_count,
                                     .slot_count = slot_count},
                          .entry_parts = std::move(blocks.parts),
                          .state_parts = std::move(states.parts),
                          .context_rank = desc.context_rank,
                          .name = desc.name});
  }
  place_arenas(made);
  return made;
}

}  // namespace baton::transfer
