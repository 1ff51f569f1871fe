// D's end: ConsumerFsm, with copies as events.
#include <utility>

#include "sim/handoff.h"

namespace baton::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

transfer::ConsumerFsmOptions options_of(World& world, const Arena& arena, const HandoffIdentity& identity) {
  transfer::ConsumerFsmOptions options;
  options.identity.engine_id = identity.engine_id;
  options.identity.instance_nonce = identity.nonce;
  options.identity.model_fingerprint = identity.model_fingerprint;
  options.identity.layout = transfer::describe(*arena.holdings, {});
  options.holdings = arena.holdings;
  options.slice_bytes = 2 * arena.holdings->geometry(0, false).block_bytes();
  options.pull_timeout = std::chrono::seconds(60);
  options.idle_timeout = std::chrono::seconds(20);
  options.first_call = world.random() >> 1;
  return options;
}

}  // namespace

SimConsumer::SimConsumer(HandoffNet& net, Process& process, std::shared_ptr<Arena> arena,
                         const HandoffIdentity& identity, transfer::WakeEngine wake)
    : net_(net),
      process_(process),
      world_(process.world()),
      arena_(std::move(arena)),
      wake_(std::move(wake)),
      fsm_(options_of(world_, *arena_, identity)) {}

SimConsumer::~SimConsumer() {
  for (const auto& [id, link] : links_) {
    link->consumer = nullptr;
    net_.cut(link, true, false);
  }
}

void SimConsumer::order(std::function<void(TimePoint)> wish) {
  process_.after(microseconds(10), [this, wish = std::move(wish)] {
    wish(process_.now());
    act();
  });
}

void SimConsumer::start(transfer::Pull pull) {
  for (const auto block : pull.blocks) open_blocks_.insert(block.value);
  if (pull.state_slot) open_slots_.insert(*pull.state_slot);
  pulls_[pull.request_id] = pull;
  order([this, pull = std::move(pull)](TimePoint at) { fsm_.start(pull, at); });
}
void SimConsumer::cancel(const std::string& request_id) {
  order([this, request_id](TimePoint at) { fsm_.cancel(request_id, at); });
}
void SimConsumer::decline(const wire::KvTransferParams& params) {
  order([this, params](TimePoint at) { fsm_.decline(params, at); });
}
void SimConsumer::hold(const wire::KvTransferParams& params) {
  order([this, params](TimePoint at) { fsm_.hold(params, at); });
}

void SimConsumer::receive(const LinkPtr& link, const wire::Message& message, std::span<const std::byte> payload) {
  if (const auto* data = std::get_if<wire::BlockData>(&message)) {
    on_data(link, *data, payload);
  } else {
    fsm_.on_message(link->at_consumer, message, process_.now());
  }
  act();
}

void SimConsumer::disconnected(const LinkPtr& link) {
  links_.erase(link->at_consumer);
  mapped_.erase(link->at_consumer);
  fsm_.on_disconnected(link->at_consumer, {Code::kUnavailable, "connection closed"}, process_.now());
  act();
}

void SimConsumer::clock_jumped() {
  fsm_.tick(process_.now());
  act();
}

void SimConsumer::act() {
  if (acting_) return;
  acting_ = true;
  for (auto actions = fsm_.take_actions(); !actions.empty(); actions = fsm_.take_actions()) {
    for (auto& action : actions) std::visit([this](auto& each) { on(each); }, action);
  }
  acting_ = false;
  plan_timer();
}

void SimConsumer::plan_timer() {
  const auto next = fsm_.next_deadline();
  if (!next && fsm_.live_pulls() > 0 && copies_ == 0) {
    world_.violation(Wrong::kHang, "{}: {} pulls wait without a deadline", process_.name(), fsm_.live_pulls());
  }
  if (!next || (armed_ && *armed_ <= *next)) return;
  armed_ = *next;
  process_.at(process_.to_world(*next), [this, when = *next] {
    if (armed_ == when) armed_.reset();
    fsm_.tick(process_.now());
    act();
  });
}

void SimConsumer::on(transfer::Connect& connect) {
  process_.after(world_.between(microseconds(50), microseconds(400)),
                 [this, id = connect.connection, host = connect.host] {
                   auto* producer = net_.find(host);
                   if (producer == nullptr) {
                     fsm_.on_disconnected(id, {Code::kUnavailable, "connection refused"}, process_.now());
                     return act();
                   }
                   auto link = std::make_shared<Link>();
                   link->consumer = this;
                   link->at_consumer = id;
                   link->producer_node = host;
                   link->consumer_node = process_.name();
                   links_[id] = link;
                   producer->accept(link);
                   fsm_.on_connected(id, process_.now());
                   act();
                 });
}

void SimConsumer::on(transfer::Disconnect& disconnect) {
  const auto it = links_.find(disconnect.connection);
  if (it == links_.end()) return;
  net_.cut(it->second, true, false);
  it->second->consumer = nullptr;
  mapped_.erase(it->first);
  links_.erase(it);
}

void SimConsumer::on(transfer::SendToPeer& send) {
  const auto it = links_.find(send.connection);
  if (it != links_.end()) net_.send(it->second, true, send.message);
}

void SimConsumer::on(transfer::MapArena& wanted) {
  Result<void> outcome = fail(Code::kUnavailable, "the prefill engine has gone");
  const auto it = links_.find(wanted.connection);
  if (it != links_.end() && it->second->producer != nullptr) {
    const auto arena = it->second->producer->arena();
    auto readers = transfer::RankReaders::over(*wanted.holdings, {arena->tables.data(), arena->tables.size()});
    outcome = {};
    if (readers) {
      mapped_[wanted.connection] = std::make_shared<Mapped>(Mapped{arena, std::move(*readers)});
    } else {
      outcome = fail(readers.error());
    }
  }
  fsm_.on_mapped(wanted.connection, outcome, process_.now());
}

void SimConsumer::on(transfer::CopyParts& work) {
  auto copying = std::make_shared<Copying>();
  if (const auto it = mapped_.find(work.connection); it != mapped_.end()) copying->from = it->second;
  copying->work = std::move(work);
  ++copies_;
  copy_next(copying);
}

// Half a part at a time: P, and whoever gets its blocks next, go on in between.
void SimConsumer::copy_next(const std::shared_ptr<Copying>& copying) {
  Duration time = world_.between(microseconds(2), microseconds(30)) + world_.scenario().frame_time;
  if (world_.strikes(Fault::kSlow, process_.name())) time += world_.between(milliseconds(1), milliseconds(100));
  process_.after(time, [this, copying] {
    auto& each = *copying;
    Result<void> outcome;
    if (each.from == nullptr) outcome = fail(Code::kUnavailable, "the prefill engine has gone");
    if (outcome) outcome = each.first_half ? copy_first_half(each) : copy_second_half(each);
    if (outcome && std::exchange(each.first_half, !each.first_half)) return copy_next(copying);
    if (outcome && ++each.good < each.work.parts.size()) return copy_next(copying);
    --copies_;
    fsm_.on_copied(each.work.leg, each.good, outcome, process_.now());
    act();
  });
}

Result<void> SimConsumer::copy_first_half(Copying& copying) {
  const auto& part = copying.work.parts[copying.good];
  BATON_TRY(copying.copy.begin(copying.from->seals, *copying.work.plan, part));
  check_open(part);
  // Whole units: a mover verifies what it has moved.
  auto& second = copying.second_half = copying.copy.moves();
  auto& units = second.moves.units;
  transport::Moves half;
  const auto middle = units.begin() + static_cast<long>(units.size() / 2);
  half.units.assign(units.begin(), middle);
  units.erase(units.begin(), middle);
  size_t runs = 0;
  for (const auto& unit : half.units) runs += unit.run_count;
  const auto end = second.moves.runs.begin() + static_cast<long>(runs);
  half.runs.assign(second.moves.runs.begin(), end);
  second.moves.runs.erase(second.moves.runs.begin(), end);
  copying.moved = move({.moves = std::move(half), .repeats = {}}, copying.from->arena->bytes(), true);
  return {};
}

Result<void> SimConsumer::copy_second_half(Copying& copying) {
  check_open(copying.work.parts[copying.good]);
  if (copying.moved) copying.moved = move(copying.second_half, copying.from->arena->bytes(), true);
  const auto outcome = copying.copy.end(copying.moved);
  if (!outcome) ++(outcome.error().code() == Code::kFailedPrecondition ? stale_ : checksum_failures_);
  return outcome;
}

// memory: it comes from mapped memory, to which the world's faults happen here.
Result<void> SimConsumer::move(const transfer::PartMoves& moves, std::span<const std::byte> source, bool memory) {
  const auto& all_runs = moves.moves.runs;
  if (all_runs.empty()) return {};
  const bool corrupt = memory && world_.strikes(Fault::kCorrupt, process_.name());
  const bool torn = memory && world_.strikes(Fault::kTear, process_.name());
  if (!corrupt && !torn) return transfer::store(mover_, moves, source, arena_->bytes());
  std::vector<std::byte> damaged(source.begin(), source.end());
  const auto& run = all_runs[world_.random() % all_runs.size()];
  const auto at = damaged.begin() + run.from;
  if (corrupt) at[static_cast<long>(world_.random() % static_cast<uint64_t>(run.bytes))] ^= std::byte{16};
  if (torn) std::fill(at + run.bytes / 2, at + run.bytes, std::byte{0xAB});
  world_.trace("{} copies {} bytes", process_.name(), corrupt ? "corrupt" : "torn");
  return transfer::store(mover_, moves, damaged, arena_->bytes());
}

// Blocks belong to a pull from its start until it completes: nothing of it may be written at another time.
void SimConsumer::check_open(const transfer::PartCopy& part) {
  for (const auto& piece : part.pieces) {
    if (piece.to < 0) continue;
    if (!(part.state ? open_slots_ : open_blocks_).contains(piece.to)) {
      world_.violation(Wrong::kLeak, "{}: a late write into {} {}", process_.name(), part.state ? "slot" : "block",
                       piece.to);
    }
  }
}

void SimConsumer::on_data(const LinkPtr& link, const wire::BlockData& data, std::span<const std::byte> payload) {
  const auto bytes = static_cast<int64_t>(payload.size());
  const auto target = fsm_.on_block_data(link->at_consumer, data, bytes, process_.now());
  if (!target) return;
  check_open(target->part);
  transfer::PartMoves moves;
  transfer::append_payload_moves(*target->plan, target->part, *target->span, target->first, target->count,
                                 data.checksums, moves);
  const auto stored = move(moves, payload, false);
  if (!stored) ++checksum_failures_;
  fsm_.on_stored(target->leg, data, bytes, stored, process_.now());
}

void SimConsumer::on(transfer::Complete& complete) {
  auto& result = complete.result;
  const auto pull = pulls_.extract(result.request_id);
  if (pull.empty())
    return world_.violation(Wrong::kLeak, "{}: pull {} completed twice", process_.name(), result.request_id);
  for (const auto block : pull.mapped().blocks) open_blocks_.erase(open_blocks_.find(block.value));
  if (pull.mapped().state_slot) open_slots_.erase(open_slots_.find(*pull.mapped().state_slot));
  pulled_ += result.outcome.has_value();
  world_.trace("{} has {} of {} tokens of {}{}: {}", process_.name(), result.valid_tokens, pull.mapped().token_count,
               result.request_id, result.state_valid ? " and its state" : "",
               result.outcome ? "good" : result.outcome.error().message());
  completed_.push_back(std::move(result));
  wake_();
}

}  // namespace baton::sim
