// Reads over TCP: pulls of one connection take turns, so that no more are under way than P allows.
#include <algorithm>

#include "transfer/consumer_fsm.h"

namespace baton::transfer {
namespace {

constexpr size_t kReadsAhead = 2;  // of one pull

}  // namespace

void ConsumerFsm::want_reads(PullId id, PullState& pull, TimePoint now) {
  Peer& peer = peers_.at(pull.peer);
  if (!pull.in_turn) {
    pull.in_turn = true;
    peer.turns.push_back(id);
  }
  give_turns(peer, now);
}

// One read a turn: a short prompt's KV doesn't wait for all of a long one's.
void ConsumerFsm::give_turns(Peer& peer, TimePoint now) {
  if (peer.state != PeerState::kReady) return;
  while (peer.reads.size() < options_.reads_per_connection && !peer.turns.empty()) {
    const PullId id = peer.turns.front();
    peer.turns.pop_front();
    const auto it = pulls_.find(id);
    if (it == pulls_.end()) continue;
    PullState& pull = it->second;
    pull.in_turn = false;
    const auto wants = [&] {
      return pull.stage == Stage::kMoving && !pull.ending && pull.connection == peer.connection &&
             pull.reads.size() < kReadsAhead && pull.requested < pull.end_item;
    };
    if (!wants()) continue;
    read_slice(peer, pull, now);
    if (!wants()) continue;
    pull.in_turn = true;
    peer.turns.push_back(id);
  }
}

void ConsumerFsm::read_slice(Peer& peer, PullState& pull, TimePoint now) {
  const uint32_t end = slice_end(pull, pull.requested);
  const uint64_t call = next_call_++;
  const bool state = end - 1 == pull.block_count;
  send(peer, wire::ReadBlocks{call, pull.offer.offer_id, pull.requested, end - pull.requested});
  if (peer.reads.empty()) pull.wake = now + options_.reply_timeout;
  peer.reads.push_back({.call = call,
                        .last_item = end - 1,
                        .last_entries = static_cast<uint32_t>(geometry_of(state).entry_count()),
                        .progress = now});
  pull.requested = end;
  pull.reads.push_back({call, end});
}

void ConsumerFsm::note_frame(Peer& peer, const wire::BlockData& data, TimePoint now) {
  const auto read = std::ranges::find(peer.reads, data.call, &ReadUnderWay::call);
  if (read == peer.reads.end()) return;
  read->progress = now;
  const uint64_t end = uint64_t{data.first_entry} + data.entry_count;
  if (data.block == read->last_item && end >= read->last_entries) end_read(peer, data.call, now);
}

void ConsumerFsm::end_read(Peer& peer, uint64_t call, TimePoint now) {
  if (std::erase_if(peer.reads, [&](const ReadUnderWay& read) { return read.call == call; }) == 0) return;
  if (!peer.reads.empty()) {
    peer.reads.front().progress = now;
    if (const PullId first = pull_by_call(peer, peer.reads.front().call); first != 0) {
      pulls_.at(first).wake = now + options_.reply_timeout;
    }
  }
  give_turns(peer, now);
}

// Those of pulls that have gone and of which nothing comes: a live pull's own deadline speaks for its reads.
void ConsumerFsm::end_stuck_reads(Peer& peer, TimePoint now) {
  while (!peer.reads.empty() && peer.reads.front().progress + options_.reply_timeout <= now &&
         pull_by_call(peer, peer.reads.front().call) == 0) {
    end_read(peer, peer.reads.front().call, now);
  }
}

// P answers what was asked before; a silence is not this pull's.
bool ConsumerFsm::waits_for_others(PullId id, const PullState& pull) const {
  const Peer& peer = peers_.at(pull.peer);
  if (pull.stage != Stage::kMoving || peer.mapped || peer.reads.empty()) return false;
  return pull_by_call(peer, peer.reads.front().call) != id;
}

}  // namespace baton::transfer
