#include "transfer/push_leg.h"

#include <algorithm>

namespace baton::transfer {

PushLeg::PushLeg(std::shared_ptr<const ReshardPlan> plan, const Pull& pull) : plan_(std::move(plan)), pull_(pull) {
  first_cell_.push_back(0);
  first_part_ = plan_->first_part(pull_.skip_tokens);
  const uint64_t end_part = plan_->parts_for(pull_.token_count);
  if (pull_.skip_tokens < pull_.token_count) {
    for (uint64_t part = first_part_; part < end_part; ++part) add_item(plan_->part(part).rank, /*state=*/false);
  }
  block_items_ = cells_left_.size();
  for (uint64_t i = 0; pull_.state_slot && i < plan_->state_part_count(); ++i) {
    add_item(plan_->state_part(i), /*state=*/true);
  }
  marks_.resize(first_cell_.back());
}

void PushLeg::add_item(int rank, bool state) {
  uint32_t cells = 0;
  for (const auto& span : plan_->spans(rank, state)) cells += span.from.entry_count;
  cells_left_.push_back(cells);
  first_cell_.push_back(first_cell_.back() + cells);
  missing_ += cells;
  if (state) state_missing_ += cells;
}

// A frame has all units of a span, in some of its entries.
Result<PushLeg::Place> PushLeg::find(const wire::PushData& data) const {
  const auto& from = data.span;
  if (data.rank < static_cast<uint32_t>(plan_->from().rank_count())) {
    uint32_t cell = 0;
    for (const auto& span : plan_->spans(static_cast<int>(data.rank), data.state)) {
      const auto& whole = span.from;
      if (from.first_unit == whole.first_unit && from.unit_count == whole.unit_count &&
          from.first_entry >= whole.first_entry && from.entry_count > 0 && from.entry_count <= whole.entry_count &&
          from.first_entry - whole.first_entry <= whole.entry_count - from.entry_count) {
        const uint32_t first = from.first_entry - whole.first_entry;
        return find_items(data, {.span = &span, .first_entry = first, .first_cell = cell + first});
      }
      cell += whole.entry_count;
    }
  }
  return fail(Code::kDataLoss, "units {}+{} of entries {}+{} of rank {} were pushed, which are not for us",
              from.first_unit, from.unit_count, from.first_entry, from.entry_count, data.rank);
}

Result<PushLeg::Place> PushLeg::find_items(const wire::PushData& data, Place place) const {
  if (data.state) {
    for (uint64_t i = 0; pull_.state_slot && i < plan_->state_part_count(); ++i) {
      if (plan_->state_part(i) != static_cast<int>(data.rank)) continue;
      if (data.first_place != 0 || data.place_count != 1) break;
      place.first_item = block_items_ + i;
      return place;
    }
    return fail(Code::kDataLoss, "a recurrent state was pushed that is not wanted");
  }
  const auto rank = static_cast<int>(data.rank);
  const uint64_t first = plan_->part_at(rank, data.first_place);
  place.item_step = plan_->part_at(rank, 1) - plan_->part_at(rank, 0);
  place.first_item = first - first_part_;
  if (first < first_part_ || place.first_item >= block_items_ ||
      (data.place_count - 1) * place.item_step >= block_items_ - place.first_item) {
    return fail(Code::kDataLoss, "{} blocks from {} of rank {} were pushed, which are not all wanted", data.place_count,
                data.first_place, data.rank);
  }
  return place;
}

int64_t PushLeg::token_begin(const wire::PushData& data, uint32_t index) const {
  const auto& from = plan_->from();
  const int64_t place = int64_t{data.first_place} + index;
  return (place * from.context_size + from.rank(static_cast<int>(data.rank)).context_rank) * from.block_size;
}

int PushLeg::tokens_of(const wire::PushData& data, uint32_t index) const {
  if (data.state) return 1;
  return static_cast<int>(std::min<int64_t>(plan_->from().block_size, pull_.token_count - token_begin(data, index)));
}

bool PushLeg::has_come(const wire::PushData& data, const Place& place) const {
  for (uint32_t i = 0; i < data.place_count; ++i) {
    const uint64_t at = first_cell_[place.first_item + i * place.item_step] + place.first_cell;
    for (uint32_t e = 0; e < data.span.entry_count; ++e) {
      if (marks_[at + e]) return true;
    }
  }
  return false;
}

PartCopy PushLeg::part_copy(const wire::PushData& data, uint32_t index) const {
  PartCopy copy{.rank = static_cast<int>(data.rank), .state = data.state, .tokens = tokens_of(data, index)};
  if (data.state) {
    copy.pieces = {{.tokens = 1, .to = *pull_.state_slot}};
    return copy;
  }
  const int64_t begin = token_begin(data, index);
  copy.pieces = plan_->pieces(begin, begin + copy.tokens,
                              {.token_count = pull_.token_count,
                               .wanted_tokens = pull_.token_count,
                               .skip_tokens = pull_.skip_tokens,
                               .to_blocks = pull_.blocks});
  return copy;
}

Result<void> PushLeg::place(const wire::PushData& data, int64_t payload_bytes, PartMoves& moves) const {
  BATON_TRY_ASSIGN(const auto place, find(data));
  const auto& geometry = plan_->from().geometry(static_cast<int>(data.rank), data.state);
  const size_t units = span_units(data.span);
  int64_t bytes = 0;
  for (uint32_t i = 0; i < data.place_count; ++i) bytes += span_bytes(geometry, data.span, tokens_of(data, i));
  if (payload_bytes != bytes || data.checksums.size() != units * data.place_count) {
    return fail(Code::kDataLoss, "a push of {} bytes with {} checksums, not {} with {}", payload_bytes,
                data.checksums.size(), bytes, units * data.place_count);
  }
  // It is verified after it is stored: what is here and verified must not be written over.
  if (has_come(data, place))
    return fail(Code::kDataLoss, "entries {}+{} came twice", data.span.first_entry, data.span.entry_count);
  int64_t at = 0;
  for (uint32_t i = 0; i < data.place_count; ++i) {
    const auto copy = part_copy(data, i);
    append_payload_moves(*plan_, copy, *place.span, place.first_entry, data.span.entry_count,
                         std::span(data.checksums).subspan(i * units, units), moves, at);
    at += span_bytes(geometry, data.span, copy.tokens);
  }
  return {};
}

void PushLeg::stored(const wire::PushData& data) {
  const auto place = find(data);
  if (!place) return;
  for (uint32_t i = 0; i < data.place_count; ++i) {
    const uint64_t item = place->first_item + i * place->item_step;
    for (uint32_t e = 0; e < data.span.entry_count; ++e) marks_[first_cell_[item] + place->first_cell + e] = true;
    cells_left_[item] -= data.span.entry_count;
  }
  const int64_t cells = int64_t{data.place_count} * data.span.entry_count;
  missing_ -= cells;
  if (data.state) state_missing_ -= cells;
}

int64_t PushLeg::valid_tokens() const {
  const auto blocks = std::span(cells_left_).first(block_items_);
  const auto first_missing = std::ranges::find_if(blocks, [](uint32_t left) { return left > 0; }) - blocks.begin();
  if (static_cast<uint64_t>(first_missing) == block_items_) return pull_.token_count;
  const int64_t before = plan_->tokens_before(first_part_ + static_cast<uint64_t>(first_missing));
  return std::clamp(before, std::min(pull_.skip_tokens, pull_.token_count), pull_.token_count);
}

}  // namespace baton::transfer
