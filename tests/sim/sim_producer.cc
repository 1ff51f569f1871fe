// P's end: ProducerFsm, with seals and sends as events.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/handoff.h"
#include "transfer/part_frames.h"

namespace baton::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

transfer::ProducerFsmOptions options_of(World& world, const Arena& arena, const HandoffIdentity& identity) {
  const auto& holdings = *arena.holdings;
  wire::HelloReply hello;
  hello.identity.engine_id = identity.engine_id;
  hello.identity.instance_nonce = identity.nonce;
  hello.identity.model_fingerprint = identity.model_fingerprint;
  hello.identity.layout = transfer::describe(holdings, {});
  hello.block_count = holdings.block_count;
  hello.slot_count = holdings.slot_count;
  hello.lease_ms = std::chrono::duration_cast<milliseconds>(world.scenario().lease).count();
  if (world.scenario().shared_memory) hello.shm = wire::ShmLocation{"sim", 1, 1, {identity.nonce, 1}, 0, 0};
  return {.hello = std::move(hello), .holdings = arena.holdings, .claim = {}, .lease = world.scenario().lease};
}

}  // namespace

SimProducer::SimProducer(HandoffNet& net, Process& process, std::shared_ptr<Arena> arena,
                         const HandoffIdentity& identity, transfer::RankSeals seals, transfer::WakeEngine wake)
    : net_(net),
      process_(process),
      world_(process.world()),
      arena_(std::move(arena)),
      seals_(std::move(seals)),
      engine_id_(identity.engine_id),
      wake_(std::move(wake)),
      fsm_(options_of(world_, *arena_, identity)) {
  net_.listen(process_.name(), this);
}

SimProducer::~SimProducer() {
  net_.stop_listening(process_.name());
  for (const auto& [id, link] : links_) {
    link->producer = nullptr;
    net_.cut(link, false, true);
  }
}

wire::KvTransferParams SimProducer::offer(transfer::Offer offer) {
  const auto& holdings = *arena_->holdings;
  wire::KvTransferParams params;
  params.do_remote_prefill = true;
  params.remote_engine_id = engine_id_;
  params.remote_request_id = offer.request_id;
  params.remote_host = process_.name();
  params.remote_port = 1;
  auto& ids = params.remote_block_ids.emplace_back();
  for (int64_t i = 0; i < holdings.blocks_for(offer.token_count); ++i) {
    ids.push_back(offer.blocks[static_cast<size_t>(i)].value);
  }
  params.remote_num_prompt_tokens = offer.token_count;
  params.remote_block_size = static_cast<int>(holdings.block_tokens());
  params.last_token_id = offer.last_token_id;
  params.baton_offer_id = world_.random() | 1;
  params.kv_lease_duration_s = std::chrono::duration<double>(world_.scenario().lease).count();
  offers_.emplace_back(params.baton_offer_id, std::move(offer));
  process_.after(microseconds(20), [this] {
    drain_inbox();
    act();
  });
  return params;
}

void SimProducer::revoke(const std::string& request_id) {
  revokes_.push_back(request_id);
  process_.after(microseconds(20), [this] {
    drain_inbox();
    act();
  });
}

void SimProducer::drain_inbox() {
  for (auto& [id, offer] : std::exchange(offers_, {})) fsm_.offer(id, std::move(offer), process_.now());
  for (const auto& request : std::exchange(revokes_, {})) fsm_.revoke(request);
}

void SimProducer::accept(const LinkPtr& link) {
  link->producer = this;
  link->at_producer = net_.next_connection();
  links_[link->at_producer] = link;
}

void SimProducer::receive(const LinkPtr& link, const wire::Message& message) {
  drain_inbox();
  fsm_.on_message(link->at_producer, message, process_.now());
  act();
}

void SimProducer::closed(const LinkPtr& link) {
  links_.erase(link->at_producer);
  fsm_.on_closed(link->at_producer, process_.now());
  finish_jobs(link);
  act();
}

void SimProducer::clock_jumped() {
  fsm_.tick(process_.now());
  act();
}

void SimProducer::act() {
  if (acting_) return;
  acting_ = true;
  for (auto actions = fsm_.take_actions(); !actions.empty(); actions = fsm_.take_actions()) {
    for (auto& action : actions) std::visit([this](auto& each) { on(each); }, action);
  }
  acting_ = false;
  plan_timer();
}

void SimProducer::plan_timer() {
  const auto next = fsm_.next_deadline();
  const bool sending =
      unsent_ > 0 || std::ranges::any_of(links_, [](const auto& each) { return !each.second->jobs.empty(); });
  if (!next && fsm_.live_offers() > 0 && sealing_.empty() && !sending) {
    world_.violation(Wrong::kHang, "{}: {} offers wait without a deadline", process_.name(), fsm_.live_offers());
  }
  if (!next || (armed_ && *armed_ <= *next)) return;
  armed_ = *next;
  process_.at(process_.to_world(*next), [this, when = *next] {
    if (armed_ == when) armed_.reset();
    fsm_.tick(process_.now());
    act();
  });
}

void SimProducer::on(transfer::SealBlocks& seal) {
  sealing_.push_back(std::make_unique<transfer::SealJob>(std::move(seal)));
  if (sealing_.size() == 1) seal_next();
}

// Block by block: the world goes on in between.
void SimProducer::seal_next() {
  process_.after(microseconds(5), [this] {
    auto& job = *sealing_.front();
    if (!job.done()) job.step(seals_, arena_->holdings->rank_count());
    if (job.done()) {
      const auto finished = std::move(sealing_.front());
      sealing_.pop_front();
      fsm_.on_sealed(finished->offer_id(), finished->generations(), process_.now());
      act();
    }
    if (!sealing_.empty()) seal_next();
  });
}

void SimProducer::on(transfer::SendToConnection& send) {
  const auto it = links_.find(send.connection);
  if (it == links_.end()) return;
  it->second->jobs.push_back({.work = std::move(send.message)});
  write_next(it->second);
}

void SimProducer::on(transfer::SendBlocks& send) {
  const auto it = links_.find(send.connection);
  if (it == links_.end() || !it->second->open) {
    ++unsent_;
    return process_.after(Duration(0), [this, connection = send.connection, offer = send.offer_id] {
      --unsent_;
      fsm_.on_blocks_sent(connection, offer);
      act();
    });
  }
  it->second->jobs.push_back({.work = std::move(send)});
  write_next(it->second);
}

// One job after the other, one part of it after the other.
void SimProducer::write_next(const LinkPtr& link) {
  if (link->writing || link->jobs.empty()) return;
  link->writing = true;
  Duration time = microseconds(3);
  if (std::holds_alternative<transfer::SendBlocks>(link->jobs.front().work)) time += world_.scenario().frame_time;
  if (world_.strikes(Fault::kSlow, process_.name())) time += world_.between(milliseconds(1), milliseconds(60));
  process_.after(time, [this, link] {
    link->writing = false;
    if (!link->open || link->jobs.empty()) return;
    auto& job = link->jobs.front();
    if (const auto* message = std::get_if<wire::Message>(&job.work)) {
      net_.send(link, false, *message);
      link->jobs.pop_front();
      return write_next(link);
    }
    const auto send = std::get<transfer::SendBlocks>(job.work);
    write_part(link, send, job.part);
    if (++job.part < send.parts.size()) return write_next(link);
    link->jobs.pop_front();
    fsm_.on_blocks_sent(send.connection, send.offer_id);
    act();
    write_next(link);
  });
}

void SimProducer::finish_jobs(const LinkPtr& link) {
  for (const auto& job : std::exchange(link->jobs, {})) {
    if (const auto* send = std::get_if<transfer::SendBlocks>(&job.work)) {
      fsm_.on_blocks_sent(send->connection, send->offer_id);
    }
  }
}

void SimProducer::write_part(const LinkPtr& link, const transfer::SendBlocks& send, size_t index) {
  auto frames = transfer::PartFrames::of(*arena_->holdings, seals_, arena_->bytes(), send, index);
  if (!frames) {
    const auto& why = frames.error();
    return net_.send(link, false, wire::ErrorReply{send.call, send.offer_id, why.code(), why.message()});
  }
  while (const auto frame = frames->next()) {
    std::vector<std::byte> payload;
    for (const auto piece : frame->payload) payload.insert(payload.end(), piece.begin(), piece.end());
    net_.send(link, false, frame->data, std::move(payload));
  }
}

void SimProducer::on(transfer::ReopenBlocks& reopen) {
  for (const int32_t block : reopen.blocks) seals_.reopen(block, false);
  for (const int32_t slot : reopen.slots) seals_.reopen(slot, true);
}

void SimProducer::on(transfer::Release& release) {
  constexpr const char* kReasons[] = {"done", "aborted", "expired", "revoked"};
  ++ended_[static_cast<size_t>(release.reason)];
  world_.trace("{} releases {}: {}", process_.name(), release.request_id,
               kReasons[static_cast<size_t>(release.reason)]);
  released_.push_back(std::move(release.request_id));
  wake_();
}

void SimProducer::on(transfer::CloseConnection& close) {
  const auto it = links_.find(close.connection);
  if (it == links_.end()) return;
  process_.after(milliseconds(1), [this, link = it->second] { net_.cut(link, true, true); });
}

}  // namespace baton::sim
