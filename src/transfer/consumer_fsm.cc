// Life of a pull: start, offer, errors, end. Connections are in consumer_peers.cc, bytes in consumer_moving.cc.
#include "transfer/consumer_fsm.h"

#include <algorithm>

#include "base/check.h"

namespace baton::transfer {
namespace {

Result<void> check_pull(const Pull& pull, int block_size) {
  if (pull.params.baton_offer_id == 0 || pull.params.remote_host.empty() || pull.params.remote_port == 0) {
    return fail(Code::kInvalidArgument,
                "kv_transfer_params need remote_host, remote_port and baton_offer_id: they must come from a Baton "
                "prefill engine");
  }
  const int64_t needed = (pull.token_count + block_size - 1) / block_size;
  if (pull.skip_tokens < 0 || pull.skip_tokens % block_size != 0 || static_cast<int64_t>(pull.blocks.size()) < needed) {
    return fail(Code::kInvalidArgument, "a pull of {} tokens without the first {} into {} blocks of {}",
                pull.token_count, pull.skip_tokens, pull.blocks.size(), block_size);
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
  if (auto good = check_pull(pull, block_size()); !good) return refuse(good.error());
  Peer* peer = peer_for(pull.params, now);
  if (peer == nullptr) return refuse(Status(Code::kResourceExhausted, "too many prefill engines at once"));
  const PullId id = next_pull_++;
  pull_ids_[pull.request_id] = id;
  peer->held.erase(pull.params.baton_offer_id);
  peer->pulls.insert(id);
  PullState& state = pulls_[id];
  state.peer = fmt::format("{}|{}", peer->host, peer->port);
  state.pull = std::move(pull);
  state.started = state.wake = now;
  state.deadline = now + options_.pull_timeout;
  state.verified = static_cast<uint32_t>(state.pull.skip_tokens / block_size());
  state.block_count = static_cast<uint32_t>((state.pull.token_count + block_size() - 1) / block_size());
  state.end_item = state.block_count + (state.pull.state_slot ? 1 : 0);
  if (state.verified >= state.end_item) {
    state.verified = state.end_item;
    return finish(id, {}, now);
  }
  pump(*peer, now);
}

void ConsumerFsm::cancel(const std::string& request_id, TimePoint now) {
  const auto it = pull_ids_.find(request_id);
  if (it == pull_ids_.end()) return;
  finish(it->second, fail(Code::kCancelled, "the pull was cancelled"), now);
}

void ConsumerFsm::decline(const wire::KvTransferParams& params, TimePoint now) {
  if (params.baton_offer_id == 0 || params.remote_host.empty() || params.remote_port == 0) return;
  Peer* peer = peer_for(params, now);
  if (peer == nullptr) return;  // the lease will end
  peer->held.erase(params.baton_offer_id);
  add_farewell(*peer, params.baton_offer_id, /*done=*/false, now);
  pump(*peer, now);
}

void ConsumerFsm::hold(const wire::KvTransferParams& params, TimePoint now) {
  if (params.baton_offer_id == 0 || params.remote_host.empty() || params.remote_port == 0) return;
  Peer* peer = peer_for(params, now);
  if (peer == nullptr || peer->held.size() >= wire::kRenewalsMax / 2) return;
  peer->held[params.baton_offer_id] = now + options_.hold_timeout;
  pump(*peer, now);
}

void ConsumerFsm::ask_offer(Peer& peer, PullId id, PullState& pull, TimePoint now) {
  const auto& expected = pull.pull.params.remote_engine_id;
  const auto& found = peer.hello.identity.engine_id;
  if (!expected.empty() && expected != found) {
    return finish(id,
                  fail(Code::kMismatch, "engine id: kv_transfer_params say {}, {}:{} is {}", expected, peer.host,
                       peer.port, found),
                  now);
  }
  const uint64_t nonce = peer.hello.identity.instance_nonce;
  if (pull.peer_nonce != 0 && pull.peer_nonce != nonce) {
    return finish(id,
                  fail(Code::kUnavailable, "prefill engine {} was restarted: instance {:016x} is now {:016x}", found,
                       pull.peer_nonce, nonce),
                  now);
  }
  pull.peer_nonce = nonce;
  pull.stage = Stage::kWaitOffer;
  pull.connection = peer.connection;
  pull.call = next_call_++;
  pull.wake = now + options_.reply_timeout;
  send(peer, wire::OfferQuery{pull.call, pull.pull.params.baton_offer_id});
}

// A state is that of one exact prefix: it can't serve a pull of fewer tokens, as blocks can.
Result<void> ConsumerFsm::check_state(const PullState& pull, const wire::OfferReply& reply) const {
  if (!pull.pull.state_slot) return {};
  if (reply.state_slot < 0) return fail(Code::kMismatch, "the offer has no recurrent state");
  const int64_t remote_slots = peers_.at(pull.peer).hello.slot_count;
  if (reply.state_slot >= remote_slots || reply.token_count != pull.pull.token_count) {
    return fail(Code::kMismatch, "recurrent state: wanted that of {} tokens, the offer has {} in slot {} of {}",
                pull.pull.token_count, reply.token_count, reply.state_slot, remote_slots);
  }
  return {};
}

void ConsumerFsm::on_offer(PullId id, const wire::OfferReply& reply, TimePoint now) {
  PullState& pull = pulls_.at(id);
  if (pull.stage != Stage::kWaitOffer || reply.offer_id != pull.pull.params.baton_offer_id) return;
  const int64_t offered_blocks = (reply.token_count + block_size() - 1) / block_size();
  const int64_t remote_blocks = peers_.at(pull.peer).hello.block_count;
  const bool sane = static_cast<int64_t>(reply.blocks.size()) == offered_blocks &&
                    std::ranges::all_of(reply.blocks, [&](int32_t b) { return b >= 0 && b < remote_blocks; });
  if (!sane || reply.token_count < pull.pull.token_count) {
    return finish(id,
                  fail(Code::kMismatch, "tokens: wanted {}, the offer has {} in {} blocks", pull.pull.token_count,
                       reply.token_count, reply.blocks.size()),
                  now);
  }
  if (reply.prompt != pull.pull.prompt) {
    return finish(id, fail(Code::kMismatch, "the offer is the KV of another prompt"), now);
  }
  if (const auto fits = check_state(pull, reply); !fits) return finish(id, fail(fits.error()), now);
  pull.offer = reply;
  pull.stage = Stage::kMoving;
  pull.entries = 0;
  pull.requested = pull.verified;
  move_on(id, now);
}

void ConsumerFsm::on_error(Peer& peer, const wire::ErrorReply& error, TimePoint now) {
  Status why(error.code, fmt::format("prefill engine at {}:{}: {}", peer.host, peer.port, error.message));
  if (error.call == 0) {
    const bool terminal = error.code == Code::kMismatch || error.code == Code::kUnauthenticated;
    return drop_connection(peer, why, terminal, now);
  }
  end_read(peer, error.call, now);
  const PullId id = pull_by_call(peer, error.call);
  if (id == 0) return;
  if (error.code == Code::kResourceExhausted) return retry(id, why, now);
  finish(id, fail(why), now);
}

void ConsumerFsm::on_renew_reply(Peer& peer, const wire::RenewReply& reply, TimePoint now) {
  for (const uint64_t offer : reply.rejected) {
    peer.held.erase(offer);
    for (const PullId id : std::set<PullId>(peer.pulls)) {
      if (pulls_.at(id).pull.params.baton_offer_id != offer) continue;
      finish(id, fail(Code::kUnavailable, "the lease ended on {}:{} while pulling", peer.host, peer.port), now);
    }
  }
}

// Another attempt from the first block that isn't verified, after a pause; or the end.
void ConsumerFsm::retry(PullId id, const Status& why, TimePoint now) {
  PullState& pull = pulls_.at(id);
  if (++pull.attempts >= options_.attempts_max) return finish(id, fail(why), now);
  pull.stage = Stage::kWaitPeer;
  pull.reads.clear();
  pull.call = 0;
  pull.entries = 0;
  pull.wake = now + options_.backoff * (1 << std::min(pull.attempts - 1, 10));
}

void ConsumerFsm::finish(PullId id, Result<void> outcome, TimePoint now) {
  PullState& pull = pulls_.at(id);
  if (pull.copying) {
    // The fence: the engine may reuse the blocks once it hears of the end, so the end waits for the copy.
    if (!outcome && !pull.ending) pull.ending = outcome.error();
    return;
  }
  PullResult result{.request_id = pull.pull.request_id,
                    .valid_tokens = std::min(pull.pull.token_count, int64_t{pull.verified} * block_size()),
                    .state_valid = pull.pull.state_slot.has_value() && pull.verified == pull.end_item,
                    .bytes = pull.bytes,
                    .seconds = seconds_between(pull.started, now),
                    .outcome = std::move(outcome)};
  Peer& peer = peers_.at(pull.peer);
  peer.pulls.erase(id);
  add_farewell(peer, pull.pull.params.baton_offer_id, result.outcome.has_value(), now);
  pull_ids_.erase(pull.pull.request_id);
  pulls_.erase(id);
  actions_.push_back(Complete{std::move(result)});
  pump(peer, now);
}

PullId ConsumerFsm::pull_by_call(const Peer& peer, uint64_t call) const {
  for (const PullId id : peer.pulls) {
    const PullState& pull = pulls_.at(id);
    if (pull.call == call) return id;
    if (std::ranges::any_of(pull.reads, [&](const Read& read) { return read.call == call; })) return id;
  }
  return 0;
}

void ConsumerFsm::tick(TimePoint now) {
  std::vector<PullId> due;
  for (const auto& [id, pull] : pulls_) {
    if (pull.ending || pull.copying) continue;
    const bool silent = pull.stage != Stage::kWaitPeer && pull.wake <= now && !waits_for_others(id, pull);
    if (pull.deadline <= now || silent) due.push_back(id);
  }
  for (const PullId id : due) {
    const auto it = pulls_.find(id);
    if (it == pulls_.end()) continue;
    PullState& pull = it->second;
    Peer& peer = peers_.at(pull.peer);
    const auto where = fmt::format("prefill engine at {}:{}", peer.host, peer.port);
    if (pull.deadline <= now) {
      finish(id,
             fail(Code::kDeadlineExceeded, "{}: the pull was not finished within {} s", where,
                  seconds_between(pull.started, now)),
             now);
    } else if (pull.stage != Stage::kWaitPeer && pull.wake <= now && !waits_for_others(id, pull)) {
      const Status why(Code::kDeadlineExceeded, fmt::format("{} does not answer", where));
      // A connection on which nothing at all was heard meanwhile is not worth another question.
      if (peer.state == PeerState::kReady && peer.heard + options_.reply_timeout <= now) {
        drop_connection(peer, why, /*terminal=*/false, now);
      } else {
        retry(id, why, now);
      }
    }
  }
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
    if (pull.copying) continue;
    consider(pull.deadline);
    // A waiting pull is woken by its peer's events until its back-off has passed; see pump_ready().
    const bool heeds = pull.stage != Stage::kWaitPeer || peers_.at(pull.peer).state == PeerState::kReady;
    if (heeds && !waits_for_others(id, pull)) consider(pull.wake);
  }
  for (const auto& [key, peer] : peers_) {
    if (peer.state == PeerState::kIdle) {
      consider(peer.has_work() ? peer.not_before : peer.idle_since + options_.idle_timeout);
    } else if (peer.state != PeerState::kReady) {
      consider(peer.deadline);
    } else {
      if (peer.answer_due) consider(*peer.answer_due);
      if (!peer.reads.empty() && pull_by_call(peer, peer.reads.front().call) == 0) {
        consider(peer.reads.front().progress + options_.reply_timeout);
      }
      if (!peer.has_work()) consider(peer.idle_since + options_.idle_timeout);
      if (!peer.pulls.empty() || !peer.held.empty()) consider(peer.next_renew);
    }
    for (const auto& [offer, farewell] : peer.farewells) {
      consider(peer.state == PeerState::kReady ? std::min(farewell.next, farewell.give_up) : farewell.give_up);
    }
    for (const auto& [offer, until] : peer.held) consider(until);
  }
  return next;
}

void ConsumerFsm::send(const Peer& peer, wire::Message message) {
  actions_.push_back(SendToPeer{peer.connection, std::move(message)});
}

}  // namespace baton::transfer
