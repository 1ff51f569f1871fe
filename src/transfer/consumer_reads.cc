// Reads over TCP: legs of one connection take turns, so that no more are under way than P allows.
#include <algorithm>

#include "transfer/consumer_fsm.h"

namespace baton::transfer {
namespace {

constexpr size_t kReadsAhead = 2;  // of one leg

}  // namespace

void ConsumerFsm::want_reads(LegId id, Leg& leg, TimePoint now) {
  Peer& peer = peers_.at(leg.peer);
  if (!leg.in_turn) {
    leg.in_turn = true;
    peer.turns.push_back(id);
  }
  give_turns(peer, now);
}

// One read a turn: a short prompt's KV doesn't wait for all of a long one's.
void ConsumerFsm::give_turns(Peer& peer, TimePoint now) {
  if (peer.state != PeerState::kReady) return;
  while (peer.reads.size() < options_.reads_per_connection && !peer.turns.empty()) {
    const LegId id = peer.turns.front();
    peer.turns.pop_front();
    const auto it = legs_.find(id);
    if (it == legs_.end()) continue;
    Leg& leg = it->second;
    leg.in_turn = false;
    const auto wants = [&] {
      return leg.stage == Stage::kMoving && !pull_of(leg).ending && leg.connection == peer.connection &&
             leg.reads.size() < kReadsAhead && leg.requested < leg.end_item;
    };
    if (!wants()) continue;
    read_slice(peer, leg, now);
    if (!wants()) continue;
    leg.in_turn = true;
    peer.turns.push_back(id);
  }
}

void ConsumerFsm::read_slice(Peer& peer, Leg& leg, TimePoint now) {
  const bool state = leg.requested >= leg.block_items;
  uint64_t end = slice_end(leg, leg.requested);
  wire::ReadBlocks read{.call = next_call_++, .offer_id = leg.offer.offer_id, .ranks = {}, .parts = {}};
  std::map<int, uint32_t> listed;
  size_t spans = 0;
  for (uint64_t i = leg.requested; i < end; ++i) {
    const auto [rank, place] = item_part(leg, i);
    const auto [entry, is_new] = listed.try_emplace(rank, static_cast<uint32_t>(read.ranks.size()));
    if (is_new) {
      const auto& route = leg.plan->spans(rank, state);
      if (i > leg.requested && spans + route.size() > wire::kReadSpansMax) end = i;
      if (i == end) break;
      spans += route.size();
      auto& wanted = read.ranks.emplace_back();
      wanted.rank = static_cast<uint32_t>(rank);
      wanted.state = state;
      for (const auto& span : route) wanted.spans.push_back(span.from);
    }
    read.parts.push_back({entry->second, place});
  }
  if (peer.reads.empty()) leg.wake = now + options_.reply_timeout;
  peer.reads.push_back({.call = read.call, .progress = now});
  leg.reads.push_back({read.call, leg.requested, end});
  leg.requested = end;
  send(peer, std::move(read));
}

void ConsumerFsm::note_frame(Peer& peer, const wire::BlockData& data, TimePoint now) {
  const auto read = std::ranges::find(peer.reads, data.call, &ReadUnderWay::call);
  if (read == peer.reads.end()) return;
  read->progress = now;
  if (data.last) end_read(peer, data.call, now);
}

void ConsumerFsm::end_read(Peer& peer, uint64_t call, TimePoint now) {
  if (std::erase_if(peer.reads, [&](const ReadUnderWay& read) { return read.call == call; }) == 0) return;
  if (!peer.reads.empty()) {
    peer.reads.front().progress = now;
    if (const LegId first = leg_by_call(peer, peer.reads.front().call); first != 0) {
      legs_.at(first).wake = now + options_.reply_timeout;
    }
  }
  for (const LegId id : peer.legs) {
    Leg& leg = legs_.at(id);
    if (leg.stage == Stage::kWaitOffer && call < leg.call) leg.wake = std::max(leg.wake, now + options_.reply_timeout);
  }
  give_turns(peer, now);
}

// Those of legs that have gone and of which nothing comes: a live leg's own deadline speaks for its reads.
void ConsumerFsm::end_stuck_reads(Peer& peer, TimePoint now) {
  while (!peer.reads.empty() && peer.reads.front().progress + options_.reply_timeout <= now &&
         leg_by_call(peer, peer.reads.front().call) == 0) {
    end_read(peer, peer.reads.front().call, now);
  }
}

// P answers what was asked before; a silence is not this leg's.
bool ConsumerFsm::waits_for_others(LegId id, const Leg& leg) const {
  const Peer& peer = peers_.at(leg.peer);
  if (peer.mapped || peer.reads.empty()) return false;
  const uint64_t first = peer.reads.front().call;  // calls are numbered in the order they were sent
  if (leg.stage == Stage::kWaitOffer) return first < leg.call;
  return leg.stage == Stage::kMoving && leg_by_call(peer, first) != id;
}

}  // namespace baton::transfer
