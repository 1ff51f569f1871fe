// Life of a pull and its legs: start, offer, errors, end. Connections are in consumer_peers.cc, bytes in
// consumer_moving.cc and consumer_reads.cc.
#include "transfer/consumer_fsm.h"

#include <algorithm>

#include "base/check.h"

namespace baton::transfer {
namespace {

constexpr uint32_t kReplicaChoices = 16;  // of plans kept per peer

Result<void> check_pull(const Pull& pull, const Holdings& ours) {
  if (pull.params.baton_offer_id == 0 || pull.params.remote_host.empty() || pull.params.remote_port == 0) {
    return fail(Code::kInvalidArgument,
                "kv_transfer_params need remote_host, remote_port and baton_offer_id: they must come from a Baton "
                "prefill engine");
  }
  if (pull.skip_tokens < 0 || pull.skip_tokens % ours.block_tokens() != 0 ||
      std::ssize(pull.blocks) < ours.blocks_for(pull.token_count)) {
    return fail(Code::kInvalidArgument, "a pull of {} tokens without the first {} into {} blocks of {}",
                pull.token_count, pull.skip_tokens, pull.blocks.size(), ours.block_tokens());
  }
  return {};
}

}  // namespace

void ConsumerFsm::start(Pull pull, TimePoint now) {
  auto refuse = [&](Status why) {
    const int64_t valid = std::min(pull.skip_tokens, pull.token_count);
    actions_.push_back(Complete{{.request_id = pull.request_id, .valid_tokens = valid, .outcome = fail(why)}});
  };
  if (pull_ids_.contains(pull.request_id)) {
    return refuse(Status(Code::kAlreadyExists, "a pull of this request is under way"));
  }
  if (auto good = check_pull(pull, *options_.holdings); !good) return refuse(good.error());
  Peer* peer = peer_for(pull.params.remote_host, pull.params.remote_port, now);
  if (peer == nullptr) return refuse(Status(Code::kResourceExhausted, "too many prefill engines at once"));
  const PullId id = next_pull_++;
  pull_ids_[pull.request_id] = id;
  PullState& state = pulls_[id];
  state.pull = std::move(pull);
  state.started = now;
  state.deadline = now + options_.pull_timeout;
  add_leg(id, *peer, /*leader=*/true, now);
  if (state.pull.skip_tokens >= state.pull.token_count && !state.pull.state_slot) return complete(id, {}, now);
  pump(*peer, now);
}

LegId ConsumerFsm::add_leg(PullId id, Peer& peer, bool leader, TimePoint now) {
  const LegId leg_id = next_leg_++;
  Leg& leg = legs_[leg_id];
  leg.pull = id;
  leg.peer = fmt::format("{}|{}", peer.host, peer.port);
  leg.leader = leader;
  leg.wake = now;
  PullState& pull = pulls_.at(id);
  pull.legs.push_back(leg_id);
  peer.legs.insert(leg_id);
  if (leader) peer.held.erase(pull.pull.params.baton_offer_id);
  return leg_id;
}

// The leader has been heard: a leg for each of its engine's other processes. False: it doesn't know them all yet.
Result<bool> ConsumerFsm::add_members(PullId id, const Peer& leader, TimePoint now) {
  PullState& pull = pulls_.at(id);
  if (pull.legs_known) return true;
  const auto members = leader.hello.members;  // a copy: the peers' table may change below
  if (std::ssize(members) + 1 < leader.hello.identity.layout.grid.processes) return false;
  pull.legs_known = true;
  for (const auto& member : members) {
    Peer* peer = peer_for(member.host, member.port, now);
    if (peer == nullptr) return fail(Code::kResourceExhausted, "too many prefill engines at once");
    const auto key = fmt::format("{}|{}", peer->host, peer->port);
    const bool known = std::ranges::any_of(pull.legs, [&](const LegId leg) { return legs_.at(leg).peer == key; });
    if (!known) add_leg(id, *peer, /*leader=*/false, now);
  }
  return true;
}

void ConsumerFsm::cancel(const std::string& request_id, TimePoint now) {
  const auto it = pull_ids_.find(request_id);
  if (it == pull_ids_.end()) return;
  end_pull(it->second, Status(Code::kCancelled, "the pull was cancelled"), now);
}

void ConsumerFsm::decline(const wire::KvTransferParams& params, TimePoint now) {
  if (params.baton_offer_id == 0 || params.remote_host.empty() || params.remote_port == 0) return;
  Peer* peer = peer_for(params.remote_host, params.remote_port, now);
  if (peer == nullptr) return;  // the lease will end
  add_farewell(*peer, params.baton_offer_id, {.done = false, .spread = true}, now);
  pump(*peer, now);
}

void ConsumerFsm::hold(const wire::KvTransferParams& params, TimePoint now) {
  if (params.baton_offer_id == 0 || params.remote_host.empty() || params.remote_port == 0) return;
  Peer* peer = peer_for(params.remote_host, params.remote_port, now);
  if (peer == nullptr || peer->held.size() >= wire::kRenewalsMax / 2) return;
  peer->held[params.baton_offer_id] = {.until = now + options_.hold_timeout, .spread = true};
  if (peer->state == PeerState::kReady) spread_hold(*peer, now);
  pump(*peer, now);
}

Result<void> ConsumerFsm::check_instance(const Leg& leg, const Peer& peer) const {
  const auto& expected = pull_of(leg).pull.params.remote_engine_id;
  const auto& found = peer.hello.identity.engine_id;
  if (leg.leader && !expected.empty() && expected != found) {
    return fail(Code::kMismatch, "engine id: kv_transfer_params say {}, {}:{} is {}", expected, peer.host, peer.port,
                found);
  }
  const uint64_t nonce = peer.hello.identity.instance_nonce;
  if (leg.peer_nonce != 0 && leg.peer_nonce != nonce) {
    return fail(Code::kUnavailable, "prefill engine {} was restarted: instance {:016x} is now {:016x}", found,
                leg.peer_nonce, nonce);
  }
  return {};
}

void ConsumerFsm::ask_offer(Peer& peer, LegId id, TimePoint now) {
  Leg& leg = legs_.at(id);
  if (const auto same = check_instance(leg, peer); !same) return end_leg(id, fail(same.error()), now);
  if (leg.leader) {
    const auto known = add_members(leg.pull, peer, now);
    if (!known) return end_leg(id, fail(known.error()), now);
    if (!*known) {
      const Status why(Code::kUnavailable,
                       fmt::format("prefill engine at {}:{} has {} processes and knows {} yet", peer.host, peer.port,
                                   peer.hello.identity.layout.grid.processes, peer.hello.members.size() + 1));
      return drop_connection(peer, why, /*terminal=*/false, now);  // the next greeting may name them
    }
  }
  const uint64_t offer_id = pull_of(leg).pull.params.baton_offer_id;
  auto& plan = peer.plans[static_cast<uint32_t>(offer_id % kReplicaChoices)];
  if (plan == nullptr) {
    plan = std::make_shared<const ReshardPlan>(peer.holdings, options_.holdings,
                                               static_cast<uint32_t>(offer_id % kReplicaChoices));
  }
  if (leg.plan != nullptr && leg.plan != plan) {
    return end_leg(id, fail(Code::kMismatch, "prefill engine at {}:{} changed its layout", peer.host, peer.port), now);
  }
  leg.plan = plan;
  leg.peer_nonce = peer.hello.identity.instance_nonce;
  leg.stage = Stage::kWaitOffer;
  leg.connection = peer.connection;
  leg.call = next_call_++;
  leg.wake = now + options_.reply_timeout;
  send(peer, wire::OfferQuery{leg.call, offer_id});
  if (leg.leader) pump_members(leg.pull, now);
}

void ConsumerFsm::pump_members(PullId id, TimePoint now) {
  for (const LegId leg_id : std::vector(pulls_.at(id).legs)) {
    const auto it = legs_.find(leg_id);  // what is pumped may end the pull
    if (it != legs_.end() && !it->second.leader) pump(peers_.at(it->second.peer), now);
  }
}

Result<void> ConsumerFsm::check_offer(const Leg& leg, const wire::OfferReply& reply) const {
  const Pull& pull = pull_of(leg).pull;
  const Holdings& theirs = leg.plan->from();
  const bool sane = std::ssize(reply.blocks) == theirs.blocks_for(reply.token_count) &&
                    reply.generations.size() == reply.blocks.size() &&
                    std::ranges::all_of(reply.blocks, [&](int32_t b) { return b >= 0 && b < theirs.block_count; });
  if (!sane || reply.token_count < pull.token_count) {
    return fail(Code::kMismatch, "tokens: wanted {}, the offer has {} in {} blocks", pull.token_count,
                reply.token_count, reply.blocks.size());
  }
  if (reply.prompt != pull.prompt) return fail(Code::kMismatch, "the offer is the KV of another prompt");
  if (!pull.state_slot || leg.plan->state_part_count() == 0) return {};
  // A state is that of one exact prefix: it can't serve a pull of fewer tokens, as blocks can.
  if (reply.state_slot < 0) return fail(Code::kMismatch, "the offer has no recurrent state");
  if (reply.state_slot >= theirs.slot_count || reply.token_count != pull.token_count) {
    return fail(Code::kMismatch, "recurrent state: wanted that of {} tokens, the offer has {} in slot {} of {}",
                pull.token_count, reply.token_count, reply.state_slot, theirs.slot_count);
  }
  return {};
}

void ConsumerFsm::on_offer(LegId id, const wire::OfferReply& reply, TimePoint now) {
  Leg& leg = legs_.at(id);
  const Pull& pull = pull_of(leg).pull;
  if (leg.stage != Stage::kWaitOffer || pull_of(leg).ending || reply.offer_id != pull.params.baton_offer_id) return;
  if (const auto fits = check_offer(leg, reply); !fits) return end_leg(id, fail(fits.error()), now);
  leg.offer = reply;
  leg.stage = Stage::kMoving;
  leg.first_part = leg.plan->first_part(pull.skip_tokens);
  const uint64_t end_part = leg.plan->parts_for(pull.token_count);
  leg.block_items = pull.skip_tokens < pull.token_count ? end_part - leg.first_part : 0;
  leg.end_item = leg.block_items + (pull.state_slot ? leg.plan->state_part_count() : 0);
  leg.span = 0;
  leg.entries = 0;
  leg.requested = leg.verified;
  move_on(id, now);
}

void ConsumerFsm::on_error(Peer& peer, const wire::ErrorReply& error, TimePoint now) {
  Status why(error.code, fmt::format("prefill engine at {}:{}: {}", peer.host, peer.port, error.message));
  if (error.call == 0) {
    const bool terminal = error.code == Code::kMismatch || error.code == Code::kUnauthenticated;
    return drop_connection(peer, why, terminal, now);
  }
  end_read(peer, error.call, now);
  const LegId id = leg_by_call(peer, error.call);
  if (id == 0) return;
  Leg& leg = legs_.at(id);
  if (error.code == Code::kResourceExhausted) return retry(id, why, now);
  if (error.code == Code::kNotFound && !leg.leader && leg.stage == Stage::kWaitOffer) {
    if (!leg.unknown_until) leg.unknown_until = now + options_.reply_timeout;
    if (now < *leg.unknown_until) {
      leg.stage = Stage::kWaitPeer;
      leg.call = 0;
      leg.wake = now + options_.backoff;
      return;
    }
  }
  end_leg(id, fail(why), now);
}

void ConsumerFsm::on_renew_reply(Peer& peer, const wire::RenewReply& reply, TimePoint now) {
  for (const uint64_t offer : reply.rejected) {
    // A member may not have heard of the offer yet; if its lease has ended, the pull will hear so.
    if (const auto held = peer.held.find(offer); held != peer.held.end() && held->second.spread) peer.held.erase(held);
    for (const LegId id : std::set<LegId>(peer.legs)) {
      const auto it = legs_.find(id);
      if (it == legs_.end() || pull_of(it->second).pull.params.baton_offer_id != offer) continue;
      const Stage stage = it->second.stage;
      if (stage == Stage::kDone || (!it->second.leader && stage != Stage::kMoving)) continue;
      end_leg(id, fail(Code::kUnavailable, "the lease ended on {}:{} while pulling", peer.host, peer.port), now);
    }
  }
}

// Another attempt from the first item that isn't verified, after a pause; or the end.
void ConsumerFsm::retry(LegId id, const Status& why, TimePoint now) {
  Leg& leg = legs_.at(id);
  if (leg.stage == Stage::kDone || pull_of(leg).ending) return;
  if (++leg.attempts >= options_.attempts_max) return end_leg(id, fail(why), now);
  leg.stage = Stage::kWaitPeer;
  leg.reads.clear();
  leg.call = 0;
  leg.span = 0;
  leg.entries = 0;
  leg.wake = now + options_.backoff * (1 << std::min(leg.attempts - 1, 10));
}

void ConsumerFsm::end_leg(LegId id, Result<void> outcome, TimePoint now) {
  Leg& leg = legs_.at(id);
  const PullId pull_id = leg.pull;
  if (!outcome) return end_pull(pull_id, outcome.error(), now);
  leg.stage = Stage::kDone;
  leg.reads.clear();
  const PullState& pull = pulls_.at(pull_id);
  if (pull.ending) return end_pull(pull_id, *pull.ending, now);
  const auto done = [&](const LegId other) { return legs_.at(other).stage == Stage::kDone; };
  if (pull.legs_known && std::ranges::all_of(pull.legs, done)) complete(pull_id, check_complete(pull), now);
}

void ConsumerFsm::end_pull(PullId id, Status why, TimePoint now) {
  PullState& pull = pulls_.at(id);
  if (!pull.ending) pull.ending = std::move(why);
  // The fence: the engine may reuse the blocks once it hears of the end, so the end waits for every copy.
  if (std::ranges::any_of(pull.legs, [&](const LegId leg) { return legs_.at(leg).copying; })) return;
  complete(id, fail(*pull.ending), now);
}

// Do the processes of P hold all that we keep, in blocks of the same size?
Result<void> ConsumerFsm::check_complete(const PullState& pull) const {
  std::vector<const ReshardPlan*> plans;
  for (const LegId leg : pull.legs) plans.push_back(legs_.at(leg).plan.get());
  if (const auto missing = ReshardPlan::missing(plans))
    return fail(Code::kMismatch, "{} of the prefill engine", *missing);
  return {};
}

int64_t ConsumerFsm::valid_tokens(const PullState& pull) const {
  const int64_t most = pull.pull.token_count, least = std::min(pull.pull.skip_tokens, most);
  int64_t valid = pull.legs_known || least == most ? most : least;
  std::vector<const ReshardPlan*> plans;
  for (const LegId id : pull.legs) {
    const Leg& leg = legs_.at(id);
    if (least == most) continue;
    if (leg.plan == nullptr || leg.end_item == 0) {
      valid = leg.stage == Stage::kDone ? valid : least;
    } else if (leg.verified < leg.block_items) {
      valid = std::min(valid, std::max(least, leg.plan->tokens_before(leg.first_part + leg.verified)));
    }
    plans.push_back(leg.plan.get());
  }
  // What no process holds is nowhere valid.
  const bool unknown = std::ranges::any_of(plans, [](const auto* plan) { return plan == nullptr; });
  if (valid > least && (unknown || ReshardPlan::missing(plans))) return least;
  return valid;
}

void ConsumerFsm::complete(PullId id, Result<void> outcome, TimePoint now) {
  auto node = pulls_.extract(id);
  PullState& pull = node.mapped();
  PullResult result{.request_id = pull.pull.request_id,
                    .valid_tokens = valid_tokens(pull),
                    .state_valid = pull.pull.state_slot.has_value() && outcome.has_value(),
                    .seconds = seconds_between(pull.started, now),
                    .outcome = std::move(outcome)};
  std::set<std::string> peers;
  for (const LegId leg_id : pull.legs) {
    const Leg& leg = legs_.at(leg_id);
    result.bytes += leg.bytes;
    Peer& peer = peers_.at(leg.peer);
    peer.legs.erase(leg_id);
    add_farewell(peer, pull.pull.params.baton_offer_id,
                 {.done = result.outcome.has_value(), .spread = leg.leader && !pull.legs_known}, now);
    peers.insert(leg.peer);
    legs_.erase(leg_id);
  }
  pull_ids_.erase(pull.pull.request_id);
  actions_.push_back(Complete{std::move(result)});
  for (const auto& key : peers) pump(peers_.at(key), now);
}

LegId ConsumerFsm::leg_by_call(const Peer& peer, uint64_t call) const {
  for (const LegId id : peer.legs) {
    const Leg& leg = legs_.at(id);
    if (leg.call == call) return id;
    if (std::ranges::any_of(leg.reads, [&](const Read& read) { return read.call == call; })) return id;
  }
  return 0;
}

void ConsumerFsm::tick_legs(TimePoint now) {
  std::vector<LegId> silent;
  for (const auto& [id, leg] : legs_) {
    if (leg.copying || pull_of(leg).ending || leg.stage == Stage::kWaitPeer || leg.stage == Stage::kDone) continue;
    if (leg.wake <= now && !waits_for_others(id, leg)) silent.push_back(id);
  }
  for (const LegId id : silent) {
    const auto it = legs_.find(id);
    if (it == legs_.end() || it->second.wake > now || it->second.stage == Stage::kWaitPeer) continue;
    Peer& peer = peers_.at(it->second.peer);
    const Status why(Code::kDeadlineExceeded,
                     fmt::format("prefill engine at {}:{} does not answer", peer.host, peer.port));
    // A connection on which nothing at all was heard meanwhile is not worth another question.
    if (peer.state == PeerState::kReady && peer.heard + options_.reply_timeout <= now) {
      drop_connection(peer, why, /*terminal=*/false, now);
    } else if (!waits_for_others(id, it->second)) {
      retry(id, why, now);
    }
  }
}

void ConsumerFsm::tick(TimePoint now) {
  std::vector<PullId> late;
  for (const auto& [id, pull] : pulls_) {
    if (!pull.ending && pull.deadline <= now) late.push_back(id);
  }
  for (const PullId id : late) {
    const auto it = pulls_.find(id);
    if (it == pulls_.end()) continue;
    const auto& params = it->second.pull.params;
    end_pull(id,
             Status(Code::kDeadlineExceeded,
                    fmt::format("prefill engine at {}:{}: the pull was not finished within {} s", params.remote_host,
                                params.remote_port, seconds_between(it->second.started, now))),
             now);
  }
  tick_legs(now);
  std::vector<std::string> keys;
  for (const auto& [key, peer] : peers_) keys.push_back(key);
  for (const auto& key : keys) {
    if (const auto it = peers_.find(key); it != peers_.end()) tick_peer(it->second, now);
  }
  std::erase_if(peers_, [&](const auto& entry) {
    const Peer& peer = entry.second;
    return peer.state == PeerState::kIdle && !peer.has_work() && peer.idle_since + options_.idle_timeout <= now;
  });
}

std::optional<TimePoint> ConsumerFsm::next_deadline() const {
  std::optional<TimePoint> next;
  const auto consider = [&](TimePoint at) {
    if (!next || at < *next) next = at;
  };
  for (const auto& [id, pull] : pulls_) {
    if (!pull.ending) consider(pull.deadline);
  }
  for (const auto& [id, leg] : legs_) {
    if (leg.copying || leg.stage == Stage::kDone || pull_of(leg).ending) continue;
    // A waiting leg is woken by its peer's events until its back-off has passed; see pump_ready().
    const bool heeds = leg.stage != Stage::kWaitPeer || peers_.at(leg.peer).state == PeerState::kReady;
    if (heeds && !waits_for_others(id, leg)) consider(leg.wake);
  }
  for (const auto& [key, peer] : peers_) {
    if (peer.state == PeerState::kIdle) {
      consider(peer.has_work() ? peer.not_before : peer.idle_since + options_.idle_timeout);
    } else if (peer.state != PeerState::kReady) {
      consider(peer.deadline);
    } else {
      if (peer.answer_due) consider(*peer.answer_due);
      if (!peer.reads.empty() && leg_by_call(peer, peer.reads.front().call) == 0) {
        consider(peer.reads.front().progress + options_.reply_timeout);
      }
      if (!peer.has_work()) consider(peer.idle_since + options_.idle_timeout);
      if (!peer.legs.empty() || !peer.held.empty()) consider(peer.next_renew);
    }
    for (const auto& [offer, farewell] : peer.farewells) {
      consider(peer.state == PeerState::kReady ? std::min(farewell.next, farewell.give_up) : farewell.give_up);
    }
    for (const auto& [offer, held] : peer.held) consider(held.until);
  }
  return next;
}

void ConsumerFsm::send(const Peer& peer, wire::Message message) {
  actions_.push_back(SendToPeer{peer.connection, std::move(message)});
}

}  // namespace baton::transfer
