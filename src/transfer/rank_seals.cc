#include "transfer/rank_seals.h"

#include "base/check.h"

namespace baton::transfer {

Result<RankSeals> RankSeals::over(std::shared_ptr<const Holdings> holdings, std::span<std::byte> tables,
                                  std::span<const std::byte> data) {
  const auto& arenas = holdings->arenas;
  if (std::ssize(tables) < arenas.table_bytes() || std::ssize(data) < arenas.data_bytes()) {
    return fail(Code::kInvalidArgument,
                "hand-off: a KV arena of {} and {} bytes is too small for {} ranks of {} blocks", data.size(),
                tables.size(), holdings->rank_count(), holdings->block_count);
  }
  RankSeals made(holdings);
  for (int r = 0; r < holdings->rank_count(); ++r) {
    const auto& layout = holdings->rank(r).layout;
    const auto at = data.subspan(static_cast<size_t>(arenas.data_offset(r)), static_cast<size_t>(layout.data_bytes()));
    const auto slots_at = static_cast<size_t>(layout.slot_offset(0));
    auto& rank = made.tables_.emplace_back();
    if (!layout.blocks.empty()) {
      BATON_TRY_ASSIGN(rank.blocks,
                       kv::SealTable::over(tables.subspan(static_cast<size_t>(arenas.block_table_offset(r))),
                                           layout.blocks, at.first(slots_at)));
    }
    if (!layout.states.empty() && layout.slot_count > 0) {
      BATON_TRY_ASSIGN(rank.slots, kv::SealTable::over(tables.subspan(static_cast<size_t>(arenas.slot_table_offset(r))),
                                                       layout.states, at.subspan(slots_at)));
    }
  }
  return made;
}

void RankSeals::begin(int32_t index, int tokens, bool state) {
  bool all_sealed = true;
  for (size_t r = 0; r < tables_.size(); ++r) {
    const auto& seals = table(r, state);
    all_sealed = all_sealed && (!seals || seals->is_sealed(index, tokens_on(r, tokens, state)));
  }
  if (!all_sealed) reopen(index, state);
}

int64_t RankSeals::seal(int rank, int32_t index, int tokens, bool state) {
  auto& seals = table(static_cast<size_t>(rank), state);
  if (!seals) return 0;
  const int here = tokens_on(static_cast<size_t>(rank), tokens, state);
  seals->seal(index, here);
  return holdings_->geometry(rank, state).sealed_bytes(here);
}

uint64_t RankSeals::generation(int32_t index, bool state) const {
  std::optional<uint64_t> generation;
  for (const auto& rank : tables_) {
    const auto& seals = state ? rank.slots : rank.blocks;
    if (!seals) continue;
    const uint64_t here = seals->reader().generation(index);
    BATON_CHECK(!generation || *generation == here, "index={} state={} generations {} and {}", index, state,
                *generation, here);
    generation = here;
  }
  return generation.value_or(0);
}

void RankSeals::reopen(int32_t index, bool state) {
  for (size_t r = 0; r < tables_.size(); ++r) {
    if (auto& seals = table(r, state)) seals->reopen(index);
  }
}

const kv::SealReader* RankSeals::reader(int rank, bool state) const {
  const auto& tables = tables_[static_cast<size_t>(rank)];
  const auto& seals = state ? tables.slots : tables.blocks;
  return seals ? &seals->reader() : nullptr;
}

Result<RankReaders> RankReaders::over(const Holdings& holdings, std::span<const std::byte> tables) {
  const auto& arenas = holdings.arenas;
  if (std::ssize(tables) < arenas.table_bytes()) {
    return fail(Code::kUnavailable, "seal tables of {} bytes are too small for {} ranks", tables.size(),
                holdings.rank_count());
  }
  RankReaders readers;
  for (int r = 0; r < holdings.rank_count(); ++r) {
    const auto& layout = holdings.rank(r).layout;
    auto& blocks = readers.blocks.emplace_back();
    auto& slots = readers.slots.emplace_back();
    if (!layout.blocks.empty()) {
      BATON_TRY_ASSIGN(blocks, kv::SealReader::over(tables.subspan(static_cast<size_t>(arenas.block_table_offset(r))),
                                                    layout.blocks.units_per_block(), layout.block_count));
    }
    if (!layout.states.empty() && layout.slot_count > 0) {
      BATON_TRY_ASSIGN(slots, kv::SealReader::over(tables.subspan(static_cast<size_t>(arenas.slot_table_offset(r))),
                                                   layout.states.units_per_block(), layout.slot_count));
    }
  }
  return readers;
}

}  // namespace baton::transfer
