// Moving the parts of a leg: slices copied from a mapped arena, or reads over TCP.
#include <algorithm>

#include "transfer/consumer_fsm.h"

namespace baton::transfer {
namespace {

// Of a part's spans, those before `span` and `entries` entries of it are here: is this one of them?
bool is_here(const wire::UnitSpan& frame, const std::vector<RouteSpan>& spans, size_t span, uint32_t entries) {
  for (size_t s = 0; s <= span; ++s) {
    const auto& from = spans[s].from;
    const uint32_t here = s < span ? from.entry_count : entries;
    if (frame.first_unit == from.first_unit && frame.unit_count == from.unit_count &&
        frame.first_entry >= from.first_entry && frame.first_entry - from.first_entry < here) {
      return true;
    }
  }
  return false;
}

}  // namespace

ReshardPlan::Part ConsumerFsm::item_part(const Leg& leg, uint64_t index) const {
  if (index < leg.block_items) return leg.plan->part(leg.first_part + index);
  return {.rank = leg.plan->state_part(index - leg.block_items)};
}

PartCopy ConsumerFsm::item(const Leg& leg, uint64_t index) const {
  const Pull& pull = pull_of(leg).pull;
  const CopyRequest request{.token_count = leg.offer.token_count,
                            .wanted_tokens = pull.token_count,
                            .skip_tokens = pull.skip_tokens,
                            .from_blocks = leg.offer.blocks,
                            .generations = leg.offer.generations,
                            .to_blocks = pull.blocks,
                            .from_slot = leg.offer.state_slot,
                            .to_slot = pull.state_slot.value_or(-1),
                            .slot_generation = leg.offer.state_generation};
  if (index < leg.block_items) return leg.plan->part_copy(leg.first_part + index, request);
  return leg.plan->state_copy(index - leg.block_items, request);
}

int64_t ConsumerFsm::item_bytes(const Leg& leg, uint64_t index) const {
  const auto [rank, place] = item_part(leg, index);
  if (index >= leg.block_items) return leg.plan->part_bytes(rank, true, 1);
  const Holdings& theirs = leg.plan->from();
  const int64_t tokens = leg.offer.token_count - int64_t{place} * theirs.block_tokens();
  return leg.plan->part_bytes(rank, false, theirs.tokens_on(rank, tokens));
}

// Items from `first` on that make a slice, at least one. Blocks and states don't share one.
uint64_t ConsumerFsm::slice_end(const Leg& leg, uint64_t first) const {
  const uint64_t most = std::min(first < leg.block_items ? leg.block_items : leg.end_item, first + wire::kReadPartsMax);
  int64_t bytes = 0;
  for (uint64_t i = first; i < most; ++i) {
    bytes += item_bytes(leg, i);
    if (bytes > options_.slice_bytes) return std::max(i, first + 1);
  }
  return most;
}

void ConsumerFsm::move_on(LegId id, TimePoint now) {
  Leg& leg = legs_.at(id);
  if (pull_of(leg).ending) return end_pull(leg.pull, *pull_of(leg).ending, now);
  if (leg.verified >= leg.end_item) return end_leg(id, {}, now);
  leg.wake = now + options_.reply_timeout;
  Peer& peer = peers_.at(leg.peer);
  if (peer.state != PeerState::kReady || peer.connection != leg.connection) {
    retry(id, Status(Code::kUnavailable, fmt::format("lost the prefill engine at {}:{}", peer.host, peer.port)), now);
    return pump(peer, now);
  }
  if (peer.mapped) {
    copy_slice(id, leg);
  } else {
    want_reads(id, leg, now);
  }
}

void ConsumerFsm::copy_slice(LegId id, Leg& leg) {
  CopyParts copy{.leg = id, .connection = leg.connection, .plan = leg.plan, .parts = {}};
  const auto end = slice_end(leg, leg.verified);
  for (uint64_t i = leg.verified; i < end; ++i) copy.parts.push_back(item(leg, i));
  leg.copying = true;
  actions_.push_back(std::move(copy));
}

void ConsumerFsm::on_copied(LegId id, size_t good_parts, const Result<void>& outcome, TimePoint now) {
  const auto it = legs_.find(id);
  if (it == legs_.end() || !it->second.copying) return;
  Leg& leg = it->second;
  leg.copying = false;
  for (size_t i = 0; i < good_parts && leg.verified < leg.end_item; ++i, ++leg.verified) {
    leg.bytes += item_bytes(leg, leg.verified);
  }
  if (pull_of(leg).ending) return end_pull(leg.pull, *pull_of(leg).ending, now);
  if (outcome) return move_on(id, now);
  if (outcome.error().code() == Code::kFailedPrecondition) return end_leg(id, fail(outcome.error()), now);
  const auto peer = leg.peer;
  retry(id, outcome.error(), now);
  pump(peers_.at(peer), now);
}

std::optional<DataTarget> ConsumerFsm::on_block_data(ConnectionId connection, const wire::BlockData& data,
                                                     int64_t payload_bytes, TimePoint now) {
  Peer* peer = by_connection(connection);
  if (peer == nullptr) return std::nullopt;
  peer->heard = now;
  peer->answer_due.reset();
  note_frame(*peer, data, now);
  const LegId id = leg_by_call(*peer, data.call);
  if (id == 0) return std::nullopt;
  Leg& leg = legs_.at(id);
  if (leg.stage != Stage::kMoving || leg.copying || leg.reads.empty() || pull_of(leg).ending) return std::nullopt;
  const Read& read = leg.reads.front();
  const uint64_t index = read.first_item + data.part;

  const auto broken = [&](Code code, std::string why) -> std::optional<DataTarget> {
    retry(id, Status(code, std::move(why)), now);
    return std::nullopt;
  };
  const auto wanted = item(leg, leg.verified);
  const auto& spans = leg.plan->spans(wanted.rank, wanted.state);
  const RouteSpan& span = spans[leg.span];
  const bool seen = index < leg.verified || (index == leg.verified && is_here(data.span, spans, leg.span, leg.entries));
  if (data.call == read.call && seen) return std::nullopt;
  const auto& geometry = leg.plan->from().geometry(wanted.rank, wanted.state);
  const bool in_turn = data.call == read.call && index == leg.verified &&
                       data.span.first_entry == span.from.first_entry + leg.entries && data.span.entry_count > 0 &&
                       data.span.entry_count <= span.from.entry_count - leg.entries &&
                       data.span.first_unit == span.from.first_unit && data.span.unit_count == span.from.unit_count;
  if (!in_turn) {
    return broken(Code::kDataLoss,
                  fmt::format("part {} of read {} with entry {} arrived in place of part {} of {} with entry {}",
                              data.part, data.call, data.span.first_entry, leg.verified - read.first_item, read.call,
                              span.from.first_entry + leg.entries));
  }
  if (data.generation != wanted.generation) {
    end_leg(id,
            fail(Code::kUnavailable, "{} {} has generation {}, {} was offered: the lease ended",
                 wanted.state ? "state slot" : "block", wanted.from, data.generation, wanted.generation),
            now);
    return std::nullopt;
  }
  const int64_t bytes = span_bytes(geometry, data.span, wanted.tokens);
  if (data.tokens != static_cast<uint32_t>(wanted.tokens) || payload_bytes != bytes ||
      data.checksums.size() != span_units(data.span)) {
    return broken(Code::kDataLoss, fmt::format("block {} came with {} tokens, {} bytes, {} checksums, not {}, {}, {}",
                                               wanted.from, data.tokens, payload_bytes, data.checksums.size(),
                                               wanted.tokens, bytes, span_units(data.span)));
  }
  return DataTarget{id, leg.plan, wanted, &span, leg.entries, data.span.entry_count};
}

void ConsumerFsm::on_stored(LegId id, const wire::BlockData& data, int64_t payload_bytes, const Result<void>& outcome,
                            TimePoint now) {
  const auto it = legs_.find(id);
  if (it == legs_.end()) return;
  Leg& leg = it->second;
  if (!outcome) {
    const auto peer = leg.peer;
    retry(id, outcome.error(), now);
    return pump(peers_.at(peer), now);
  }
  leg.bytes += payload_bytes;
  leg.entries += data.span.entry_count;
  leg.wake = now + options_.reply_timeout;
  const auto [rank, place] = item_part(leg, leg.verified);
  const auto& spans = leg.plan->spans(rank, leg.verified >= leg.block_items);
  if (leg.entries < spans[leg.span].from.entry_count) return;
  leg.entries = 0;
  if (++leg.span < spans.size()) return;
  leg.span = 0;
  ++leg.verified;
  if (leg.verified == leg.reads.front().end_item) leg.reads.pop_front();
  move_on(id, now);
}

}  // namespace baton::transfer
