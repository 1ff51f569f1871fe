// Connections to prefill engines: connect, greet, renew leases, say farewell, go away when idle.
#include <algorithm>

#include "transfer/consumer_fsm.h"

namespace baton::transfer {
namespace {

constexpr Duration kBackoffMax = std::chrono::seconds(2);
constexpr int kFarewellsMax = 3;
constexpr Duration kFarewellFor = std::chrono::seconds(30);  // the lease frees what a farewell doesn't reach
constexpr Duration kDefaultLease = std::chrono::seconds(30);

Duration lease_of(const wire::HelloReply& hello) {
  return hello.lease_ms > 0 ? std::chrono::milliseconds(std::min<int64_t>(hello.lease_ms, 1'000'000'000))
                            : kDefaultLease;
}

}  // namespace

ConsumerFsm::Peer* ConsumerFsm::peer_for(const std::string& host, int port, TimePoint now) {
  const auto key = fmt::format("{}|{}", host, port);
  if (const auto it = peers_.find(key); it != peers_.end()) return &it->second;
  if (peers_.size() >= options_.peers_max) return nullptr;
  Peer& peer = peers_[key];
  peer.host = host;
  peer.port = port;
  peer.not_before = peer.idle_since = now;
  return &peer;
}

ConsumerFsm::Peer* ConsumerFsm::by_connection(ConnectionId connection) {
  for (auto& [key, peer] : peers_) {
    if (peer.connection == connection && peer.state != PeerState::kIdle) return &peer;
  }
  return nullptr;
}

void ConsumerFsm::pump(Peer& peer, TimePoint now) {
  if (!peer.has_work()) return;
  peer.idle_since = now;
  if (peer.state == PeerState::kReady) return pump_ready(peer, now);
  if (peer.state != PeerState::kIdle || now < peer.not_before) return;
  peer.state = PeerState::kConnecting;
  peer.connection = next_connection_++;
  peer.deadline = now + options_.connect_timeout;
  actions_.push_back(Connect{peer.connection, peer.host, peer.port});
}

void ConsumerFsm::pump_ready(Peer& peer, TimePoint now) {
  for (const LegId id : std::set<LegId>(peer.legs)) {
    const auto it = legs_.find(id);
    if (it == legs_.end() || it->second.stage != Stage::kWaitPeer || it->second.wake > now) continue;
    if (it->second.copying || pull_of(it->second).ending) continue;
    ask_offer(peer, id, now);
    if (peer.state != PeerState::kReady) return;
  }
  std::vector<std::pair<uint64_t, bool>> spread;
  for (auto it = peer.farewells.begin(); it != peer.farewells.end();) {
    auto& [offer, farewell] = *it;
    if (farewell.next <= now && farewell.attempts >= kFarewellsMax) {
      it = peer.farewells.erase(it);
      continue;
    }
    if (farewell.next <= now) {
      ++farewell.attempts;
      farewell.next = now + options_.reply_timeout;
      send(peer, wire::EndOffer{next_call_++, offer, farewell.done});
      if (std::exchange(farewell.spread, false)) spread.emplace_back(offer, farewell.done);
    }
    ++it;
  }
  for (const auto& [offer, done] : spread) spread_farewell(peer, offer, done, now);
}

void ConsumerFsm::spread_farewell(Peer& peer, uint64_t offer_id, bool done, TimePoint now) {
  for (const auto& [host, port] : std::vector(peer.hello.members)) {
    Peer* member = peer_for(host, port, now);
    if (member == nullptr || member == &peer) continue;
    add_farewell(*member, offer_id, {.done = done}, now);
    pump(*member, now);
  }
}

void ConsumerFsm::spread_hold(Peer& peer, TimePoint now) {
  for (const auto& [host, port] : std::vector(peer.hello.members)) {
    Peer* member = peer_for(host, port, now);
    if (member == nullptr || member == &peer) continue;
    for (const auto& [offer, held] : peer.held) {
      if (held.spread && member->held.size() < wire::kRenewalsMax / 2) {
        member->held.try_emplace(offer, Held{.until = held.until});
      }
    }
    pump(*member, now);
  }
}

void ConsumerFsm::on_connected(ConnectionId connection, TimePoint now) {
  Peer* peer = by_connection(connection);
  if (peer == nullptr || peer->state != PeerState::kConnecting) return;
  peer->state = PeerState::kGreeting;
  peer->heard = now;
  send(*peer, wire::Hello{options_.identity});
}

void ConsumerFsm::on_disconnected(ConnectionId connection, const Status& why, TimePoint now) {
  Peer* peer = by_connection(connection);
  if (peer == nullptr) return;
  const bool terminal =
      why.code() == Code::kUnauthenticated || why.code() == Code::kMismatch || why.code() == Code::kInvalidArgument;
  drop_connection(*peer, why.with_context(fmt::format("prefill engine at {}:{}", peer->host, peer->port)), terminal,
                  now);
}

// A terminal reason (identity, secret) fails the waiting pulls at once; any other costs each an attempt.
void ConsumerFsm::drop_connection(Peer& peer, const Status& why, bool terminal, TimePoint now) {
  if (peer.state == PeerState::kIdle) return;
  actions_.push_back(Disconnect{peer.connection});
  peer.state = PeerState::kIdle;
  peer.mapped = false;
  peer.answer_due.reset();
  peer.idle_since = now;
  peer.reads.clear();
  peer.turns.clear();
  peer.not_before = now + std::min(kBackoffMax, options_.backoff * (1 << std::min(peer.failures++, 10)));
  if (terminal) peer.farewells.clear();  // it will not listen; its leases end by themselves
  for (const LegId id : std::set<LegId>(peer.legs)) {
    const auto it = legs_.find(id);
    if (it == legs_.end()) continue;
    it->second.in_turn = false;
    if (it->second.stage == Stage::kDone) continue;
    if (terminal) {
      end_leg(id, fail(why), now);
    } else if (!it->second.copying) {
      retry(id, why, now);
    }
  }
}

void ConsumerFsm::on_message(ConnectionId connection, const wire::Message& message, TimePoint now) {
  Peer* peer = by_connection(connection);
  if (peer == nullptr) return;
  peer->heard = now;
  peer->answer_due.reset();
  if (const auto* hello = std::get_if<wire::HelloReply>(&message)) {
    if (peer->state == PeerState::kGreeting) greet(*peer, *hello, now);
  } else if (const auto* offer = std::get_if<wire::OfferReply>(&message)) {
    if (const LegId id = leg_by_call(*peer, offer->call); id != 0) on_offer(id, *offer, now);
  } else if (const auto* renewed = std::get_if<wire::RenewReply>(&message)) {
    on_renew_reply(*peer, *renewed, now);
  } else if (const auto* ended = std::get_if<wire::EndReply>(&message)) {
    peer->farewells.erase(ended->offer_id);
  } else if (const auto* error = std::get_if<wire::ErrorReply>(&message)) {
    on_error(*peer, *error, now);
  }
  // Requests are not for D and are ignored: it asks, it doesn't serve.
}

// Of a peer that was here before, what is known of its layout stays.
Result<void> ConsumerFsm::take_layout(Peer& peer, const wire::HelloReply& reply) const {
  const auto& layout = reply.identity.layout;
  BATON_TRY(wire::compare_identity(options_.identity, reply.identity, options_.allow));
  BATON_TRY(wire::check_claim(options_.claim, layout.grid, "prefill engine"));
  const bool same = peer.holdings != nullptr && layout == peer.hello.identity.layout &&
                    reply.block_count == peer.hello.block_count && reply.slot_count == peer.hello.slot_count;
  if (same) return {};
  BATON_TRY_ASSIGN(auto holdings, holdings_of(layout, reply.block_count, reply.slot_count));
  peer.holdings = std::make_shared<const Holdings>(std::move(holdings));
  peer.plans.clear();
  return {};
}

void ConsumerFsm::greet(Peer& peer, const wire::HelloReply& reply, TimePoint now) {
  if (const auto agreed = take_layout(peer, reply); !agreed) {
    const auto where =
        fmt::format("prefill engine {} at {}:{} refused", reply.identity.engine_id, peer.host, peer.port);
    return drop_connection(peer, agreed.error().with_context(where), /*terminal=*/true, now);
  }
  peer.hello = reply;
  peer.mapped = false;
  if (options_.transport != TransportMode::kTcp && reply.shm) {
    peer.state = PeerState::kMapping;
    actions_.push_back(MapArena{peer.connection, *reply.shm, peer.holdings});
    return;
  }
  if (options_.transport == TransportMode::kShm) {
    const Status why(Code::kMismatch, fmt::format("prefill engine at {}:{} offers no shared memory, and transport shm "
                                                  "was asked for: use auto or tcp",
                                                  peer.host, peer.port));
    return drop_connection(peer, why, /*terminal=*/true, now);
  }
  become_ready(peer, now);
}

int64_t ConsumerFsm::payload_bytes_max(ConnectionId connection) {
  int64_t most = 1 << 20;
  const Peer* peer = by_connection(connection);
  if (peer == nullptr || peer->holdings == nullptr) return most;
  for (int r = 0; r < peer->holdings->rank_count(); ++r) {
    for (const bool state : {false, true}) {
      const auto& geometry = peer->holdings->geometry(r, state);
      for (int e = 0; e < geometry.entry_count(); ++e) most = std::max(most, geometry.entry_bytes(e));
    }
  }
  return std::min<int64_t>(most, wire::kPayloadBytesMax);
}

void ConsumerFsm::on_mapped(ConnectionId connection, const Result<void>& outcome, TimePoint now) {
  Peer* peer = by_connection(connection);
  if (peer == nullptr || peer->state != PeerState::kMapping) return;
  if (!outcome && options_.transport == TransportMode::kShm) {
    const Status why(Code::kMismatch,
                     fmt::format("shared memory of the prefill engine at {}:{}: {}: use transport auto "
                                 "or tcp",
                                 peer->host, peer->port, outcome.error().message()));
    return drop_connection(*peer, why, /*terminal=*/true, now);
  }
  peer->mapped = outcome.has_value();
  become_ready(*peer, now);
}

void ConsumerFsm::become_ready(Peer& peer, TimePoint now) {
  peer.state = PeerState::kReady;
  peer.failures = 0;
  // At once, since some of the leases may have been running for long; then every sixth of a lease.
  peer.next_renew = now;
  spread_hold(peer, now);
  pump(peer, now);
  send_renew(peer, now);
}

void ConsumerFsm::send_renew(Peer& peer, TimePoint now) {
  peer.next_renew = now + lease_of(peer.hello) / 6;
  wire::Renew renew{.call = next_call_++};
  for (const auto& [offer, held] : peer.held) renew.offer_ids.push_back(offer);
  for (const LegId id : peer.legs) {
    if (renew.offer_ids.size() < wire::kRenewalsMax) {
      renew.offer_ids.push_back(pull_of(legs_.at(id)).pull.params.baton_offer_id);
    }
  }
  if (renew.offer_ids.empty()) return;
  if (!peer.answer_due) peer.answer_due = now + options_.reply_timeout;
  send(peer, std::move(renew));
}

void ConsumerFsm::add_farewell(Peer& peer, uint64_t offer_id, Farewell farewell, TimePoint now) {
  peer.held.erase(offer_id);
  farewell.next = now;
  farewell.give_up = now + kFarewellFor;
  if (peer.farewells.size() < wire::kRenewalsMax) peer.farewells.try_emplace(offer_id, farewell);
}

void ConsumerFsm::tick_peer(Peer& peer, TimePoint now) {
  std::erase_if(peer.farewells, [&](const auto& entry) { return entry.second.give_up <= now; });
  std::erase_if(peer.held, [&](const auto& entry) { return entry.second.until <= now; });
  const bool setting_up = peer.state != PeerState::kIdle && peer.state != PeerState::kReady;
  if (setting_up && peer.deadline <= now) {
    const double seconds = std::chrono::duration<double>(options_.connect_timeout).count();
    const Status why(Code::kDeadlineExceeded,
                     fmt::format("no hand-off connection to {}:{} within {} s", peer.host, peer.port, seconds));
    drop_connection(peer, why, /*terminal=*/false, now);
  }
  if (peer.state == PeerState::kReady && peer.answer_due && *peer.answer_due <= now) {
    const Status why(Code::kDeadlineExceeded,
                     fmt::format("prefill engine at {}:{} does not answer", peer.host, peer.port));
    drop_connection(peer, why, /*terminal=*/false, now);
  }
  if (peer.state == PeerState::kReady) {
    end_stuck_reads(peer, now);
    if (peer.next_renew <= now && (!peer.legs.empty() || !peer.held.empty())) send_renew(peer, now);
    if (!peer.has_work() && peer.idle_since + options_.idle_timeout <= now) {
      actions_.push_back(Disconnect{peer.connection});
      peer.state = PeerState::kIdle;
      peer.idle_since = now;
      peer.reads.clear();
      peer.turns.clear();
    }
  }
  pump(peer, now);
}

}  // namespace baton::transfer
