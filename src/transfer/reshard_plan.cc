#include "transfer/reshard_plan.h"

#include <algorithm>
#include <map>
#include <set>

namespace baton::transfer {
namespace {

const std::vector<kv::EntryPart>& parts_of(const kv::RankCache& rank, bool state) {
  return state ? rank.state_parts : rank.entry_parts;
}

// Where each rank keeps each of the model's entries.
class EntryIndex {
 public:
  EntryIndex(const Holdings& holdings, bool state) : holdings_(holdings), state_(state) {
    for (const auto& rank : holdings.ranks) {
      auto& local = local_.emplace_back();
      const auto& parts = parts_of(rank, state);
      for (size_t e = 0; e < parts.size(); ++e) local[parts[e].index] = static_cast<int>(e);
    }
  }
  struct Held {
    int rank = 0, entry = 0;
    int first = 0, end = 0;  // units of the model's entry
  };
  // Ranks among `ranks` that keep a part of the model's entry.
  std::vector<Held> holders(int index, const std::vector<int>& ranks) const {
    std::vector<Held> held;
    for (const int r : ranks) {
      const auto& local = local_[static_cast<size_t>(r)];
      const auto it = local.find(index);
      if (it == local.end()) continue;
      const int first = parts_of(holdings_.rank(r), state_)[static_cast<size_t>(it->second)].first_unit;
      const int units = holdings_.geometry(r, state_).entries()[static_cast<size_t>(it->second)].units;
      held.push_back({r, it->second, first, first + units});
    }
    return held;
  }
  std::set<int> indices(const std::vector<int>& ranks) const {
    std::set<int> all;
    for (const int r : ranks) {
      for (const auto& [index, entry] : local_[static_cast<size_t>(r)]) all.insert(index);
    }
    return all;
  }

 private:
  const Holdings& holdings_;
  const bool state_;
  std::vector<std::map<int, int>> local_;
};

// Ranks by context rank; of states all together.
std::vector<std::vector<int>> groups_of(const Holdings& holdings, bool state) {
  std::vector<std::vector<int>> groups(state ? 1 : static_cast<size_t>(holdings.context_size));
  for (int r = 0; r < holdings.rank_count(); ++r) {
    groups[state ? 0 : static_cast<size_t>(holdings.rank(r).context_rank)].push_back(r);
  }
  return groups;
}

// Of each of the model's entries on D: where its units begin in a list of all units.
std::map<int, int64_t> unit_offsets(const Holdings& to, bool state, int64_t& total) {
  std::map<int, int> units;
  for (const auto& rank : to.ranks) {
    for (const auto& part : parts_of(rank, state)) units[part.index] = part.total_units;
  }
  std::map<int, int64_t> offsets;
  total = 0;
  for (const auto& [index, count] : units) {
    offsets[index] = total;
    total += count;
  }
  return offsets;
}

// Every target of `next` is `units` units and `entries` entries after that of `span`.
bool in_step(const RouteSpan& span, const RouteSpan& next, int entries, int units) {
  if (span.targets.size() != next.targets.size()) return false;
  for (size_t c = 0; c < span.targets.size(); ++c) {
    if (span.targets[c].size() != next.targets[c].size()) return false;
    for (size_t t = 0; t < span.targets[c].size(); ++t) {
      auto expected = span.targets[c][t];
      expected.entry += entries;
      expected.unit += units;
      if (!(expected == next.targets[c][t])) return false;
    }
  }
  return true;
}

}  // namespace

// Builds the spans of one kind: entry by entry, joining what lies together.
struct ReshardPlan::Builder {
  const Holdings& from;
  const Holdings& to;
  const bool state;
  const uint32_t choice;
  EntryIndex from_index{from, state}, to_index{to, state};
  std::vector<std::vector<int>> to_groups = groups_of(to, state);
  int64_t total_units = 0;
  std::map<int, int64_t> offsets = unit_offsets(to, state, total_units);
  std::vector<std::vector<RouteSpan>> routes{from.ranks.size()};
  std::vector<bool> covered{};

  void build() {
    const auto groups = groups_of(from, state);
    covered.assign(groups.size() * static_cast<size_t>(total_units), false);
    for (size_t c = 0; c < groups.size(); ++c) {
      std::map<int, std::vector<RouteSpan>> open;  // of the entry before, by rank of P
      for (const int index : from_index.indices(groups[c])) {
        join_entries(spans_of(index, groups[c], c), open);
      }
      for (auto& [rank, spans] : open) close(rank, spans);
    }
  }

  // Of one entry, by rank of P.
  std::map<int, std::vector<RouteSpan>> spans_of(int index, const std::vector<int>& group, size_t context_rank) {
    const auto givers = from_index.holders(index, group);
    std::vector<std::vector<EntryIndex::Held>> takers;
    std::set<int> borders;
    for (const auto& held : givers) borders.insert({held.first, held.end});
    for (const auto& to_group : to_groups) {
      takers.push_back(to_index.holders(index, to_group));
      for (const auto& held : takers.back()) borders.insert({held.first, held.end});
    }
    std::map<int, std::vector<RouteSpan>> spans;
    for (auto border = borders.begin(); border != borders.end() && std::next(border) != borders.end(); ++border) {
      add_units(index, *border, *std::next(border), givers, takers, context_rank, spans);
    }
    return spans;
  }

  void add_units(int index, int begin, int end, const std::vector<EntryIndex::Held>& givers,
                 const std::vector<std::vector<EntryIndex::Held>>& takers, size_t context_rank,
                 std::map<int, std::vector<RouteSpan>>& spans) {
    const auto has = [&](const EntryIndex::Held& held) { return held.first <= begin && end <= held.end; };
    std::vector<EntryIndex::Held> replicas;
    std::ranges::copy_if(givers, std::back_inserter(replicas), has);
    if (replicas.empty()) return;
    const auto& giver = replicas[choice % replicas.size()];
    RouteSpan span{.from = {.first_entry = static_cast<uint32_t>(giver.entry),
                            .entry_count = 1,
                            .first_unit = static_cast<uint32_t>(begin - giver.first),
                            .unit_count = static_cast<uint32_t>(end - begin)},
                   .targets = {}};
    bool wanted = false;
    for (const auto& group : takers) {
      auto& targets = span.targets.emplace_back();
      for (const auto& held : group) {
        if (has(held)) targets.push_back({held.rank, held.entry, begin - held.first});
      }
      wanted = wanted || !targets.empty();
    }
    if (!wanted) return;
    const auto first = covered.begin() + static_cast<int64_t>(context_rank) * total_units + offsets.at(index);
    std::fill(first + begin, first + end, true);
    auto& list = spans[giver.rank];
    if (!list.empty()) {
      auto& last = list.back();
      const bool adjacent = last.from.first_unit + last.from.unit_count == span.from.first_unit;
      if (adjacent && in_step(last, span, 0, static_cast<int>(last.from.unit_count))) {
        last.from.unit_count += span.from.unit_count;
        return;
      }
    }
    list.push_back(std::move(span));
  }

  void join_entries(std::map<int, std::vector<RouteSpan>> spans, std::map<int, std::vector<RouteSpan>>& open) {
    for (auto& [rank, list] : spans) {
      auto& before = open[rank];
      const bool joins =
          before.size() == list.size() && std::ranges::equal(before, list, [](const auto& a, const auto& b) {
            return a.from.first_unit == b.from.first_unit && a.from.unit_count == b.from.unit_count &&
                   a.from.first_entry + a.from.entry_count == b.from.first_entry &&
                   in_step(a, b, static_cast<int>(a.from.entry_count), 0);
          });
      if (joins) {
        for (auto& span : before) ++span.from.entry_count;
      } else {
        close(rank, before);
        before = std::move(list);
      }
    }
  }

  void close(int rank, std::vector<RouteSpan>& spans) {
    auto& route = routes[static_cast<size_t>(rank)];
    std::ranges::move(spans, std::back_inserter(route));
    spans.clear();
  }
};

ReshardPlan::ReshardPlan(std::shared_ptr<const Holdings> from, std::shared_ptr<const Holdings> to, uint32_t choice)
    : from_(std::move(from)), to_(std::move(to)) {
  Builder blocks{.from = *from_, .to = *to_, .state = false, .choice = choice};
  blocks.build();
  Builder states{.from = *from_, .to = *to_, .state = true, .choice = choice};
  states.build();
  routes_ = std::move(blocks.routes);
  covered_ = std::move(blocks.covered);
  state_routes_ = std::move(states.routes);
  states_covered_ = std::move(states.covered);
  const auto groups = groups_of(*from_, false);
  turn_of_.resize(from_->ranks.size());
  for (size_t c = 0; c < groups.size(); ++c) {
    turn_begin_.push_back(turns_.size());
    for (const int r : groups[c]) {
      if (spans(r, false).empty()) continue;
      turn_of_[static_cast<size_t>(r)] = turns_.size();
      turns_.push_back({static_cast<int>(c), r});
    }
  }
  turn_begin_.push_back(turns_.size());
  for (int r = 0; r < from_->rank_count(); ++r) {
    if (!spans(r, true).empty()) state_ranks_.push_back(r);
  }
}

int64_t ReshardPlan::part_bytes(int rank, bool state, int tokens) const {
  int64_t bytes = 0;
  for (const auto& span : spans(rank, state)) bytes += span_bytes(from_->geometry(rank, state), span.from, tokens);
  return bytes;
}

uint64_t ReshardPlan::first_part(int64_t token) const {
  const int64_t block = token / from_->block_size;
  const auto turn = static_cast<uint64_t>(block / from_->context_size);
  return turn * turns_.size() + turn_begin_[static_cast<size_t>(block % from_->context_size)];
}

uint64_t ReshardPlan::parts_for(int64_t tokens) const { return first_part(tokens + from_->block_size - 1); }

int64_t ReshardPlan::tokens_before(uint64_t index) const {
  if (turns_.empty()) return INT64_MAX;
  const auto turn = static_cast<int64_t>(index / turns_.size());
  return (turn * from_->context_size + turns_[index % turns_.size()].context_rank) * from_->block_size;
}

ReshardPlan::Part ReshardPlan::part(uint64_t index) const {
  return {turns_[index % turns_.size()].rank, static_cast<uint32_t>(index / turns_.size())};
}

// Positions [begin, end), which one block of P holds, by the blocks of D that they go to.
std::vector<TokenPiece> ReshardPlan::pieces(int64_t begin, int64_t end, const CopyRequest& request) const {
  const int block_size = to_->block_size;
  std::vector<TokenPiece> pieces;
  for (int64_t at = begin; at < end;) {
    const bool wanted = at >= request.skip_tokens && at < request.wanted_tokens;
    TokenPiece piece{.from_token = static_cast<int>(at - begin)};
    int64_t until = end;
    if (wanted) {
      const int64_t block = at / block_size;
      until = std::min({end, (block + 1) * block_size, request.wanted_tokens});
      piece.to = request.to_blocks[static_cast<size_t>(block / to_->context_size)].value;
      piece.to_token = static_cast<int>(at % block_size);
      piece.context_rank = static_cast<int>(block % to_->context_size);
    } else if (at < request.skip_tokens) {
      until = std::min(end, request.skip_tokens);
    }
    piece.tokens = static_cast<int>(until - at);
    pieces.push_back(piece);
    at = until;
  }
  return pieces;
}

PartCopy ReshardPlan::part_copy(uint64_t index, const CopyRequest& request) const {
  const auto [rank, place] = part(index);
  const int64_t begin = (int64_t{place} * from_->context_size + from_->rank(rank).context_rank) * from_->block_size;
  const int64_t end = std::min(begin + from_->block_size, request.token_count);
  return {.rank = rank,
          .from = request.from_blocks[place],
          .tokens = static_cast<int32_t>(end - begin),
          .generation = request.generations[place],
          .pieces = pieces(begin, end, request)};
}

PartCopy ReshardPlan::state_copy(uint64_t index, const CopyRequest& request) const {
  return {.rank = state_ranks_[index],
          .state = true,
          .from = request.from_slot,
          .tokens = 1,
          .generation = request.slot_generation,
          .pieces = {{.tokens = 1, .to = request.to_slot}}};
}

void ReshardPlan::append_copies(const PartCopy& part, std::vector<Copy>& copies) const {
  for (const auto& span : spans(part.rank, part.state)) {
    for (const auto& piece : part.pieces) {
      if (piece.to < 0) continue;
      bool first = true;
      for (const auto& target : span.targets[static_cast<size_t>(piece.context_rank)]) {
        copies.push_back({.from_rank = part.rank,
                          .to_rank = target.rank,
                          .state = part.state,
                          .local = !first,
                          .from_block = part.from,
                          .to_block = piece.to,
                          .from_entry = static_cast<int>(span.from.first_entry),
                          .to_entry = target.entry,
                          .entry_count = static_cast<int>(span.from.entry_count),
                          .from_unit = static_cast<int>(span.from.first_unit),
                          .to_unit = target.unit,
                          .unit_count = static_cast<int>(span.from.unit_count),
                          .from_token = piece.from_token,
                          .to_token = piece.to_token,
                          .token_count = piece.tokens});
        first = false;
      }
    }
  }
}

std::vector<Copy> ReshardPlan::copies(const CopyRequest& request) const {
  std::vector<Copy> copies;
  const uint64_t end = parts_for(std::min(request.wanted_tokens, request.token_count));
  for (uint64_t i = first_part(request.skip_tokens); i < end; ++i) append_copies(part_copy(i, request), copies);
  if (request.to_slot < 0) return copies;
  for (uint64_t i = 0; i < state_part_count(); ++i) append_copies(state_copy(i, request), copies);
  return copies;
}

std::optional<std::string> ReshardPlan::missing(std::span<const ReshardPlan* const> plans) {
  for (const auto* plan : plans) {
    if (plan->from_->block_size != plans[0]->from_->block_size ||
        plan->from_->context_size != plans[0]->from_->context_size) {
      return "the processes of the prefill engine don't agree on the size of a block";
    }
  }
  for (const bool state : {false, true}) {
    const Holdings& to = *plans[0]->to_;
    int64_t total = 0;
    const auto offsets = unit_offsets(to, state, total);
    const size_t all = (state ? plans[0]->states_covered_ : plans[0]->covered_).size();
    for (size_t at = 0; at < all; ++at) {
      const bool covered = std::ranges::any_of(
          plans, [&](const ReshardPlan* plan) { return (state ? plan->states_covered_ : plan->covered_)[at]; });
      if (covered) continue;
      const auto unit = static_cast<int64_t>(at) % total;
      const auto entry = std::ranges::find_if(offsets.rbegin(), offsets.rend(),
                                              [&](const auto& offset) { return offset.second <= unit; });
      return fmt::format("head {} of {} entry {}, context rank {}, is held by no rank", unit - entry->second,
                         state ? "state" : "cache", entry->first, static_cast<int64_t>(at) / total);
    }
  }
  return std::nullopt;
}

}  // namespace baton::transfer
