#include "engine/rank_cache.h"

#include "base/check.h"

namespace baton::engine {
namespace {

// A model that names no parts is whole on its one rank.
std::vector<kv::EntryPart> parts_of(const std::vector<models::EntryPart>& parts, const kv::PagedGeometry& geometry) {
  std::vector<kv::EntryPart> converted;
  for (const auto& part : parts) converted.push_back({part.index, part.first_head, part.total_heads});
  for (int entry = 0; parts.empty() && entry < geometry.entry_count(); ++entry) {
    converted.push_back({.index = entry, .total_units = geometry.entries()[static_cast<size_t>(entry)].units});
  }
  BATON_CHECK(std::ssize(converted) == geometry.entry_count(), "{} parts of {} entries", converted.size(),
              geometry.entry_count());
  return converted;
}

}  // namespace

kv::RankCache rank_cache(const CacheShape& shape, const models::CacheNeeds& needs, const parallel::RankPlace& place) {
  return {.layout = shape.layout,
          .entry_parts = parts_of(needs.parts, shape.layout.blocks),
          .state_parts = parts_of(needs.state_parts, shape.layout.states),
          .context_rank = place.context_rank(),
          .name = place.text(),
          .grid = {.pp = place.sizes.pp, .pcp = place.sizes.pcp, .tp = place.sizes.tp, .dcp = place.sizes.dcp},
          .stage = place.stage};
}

}  // namespace baton::engine
