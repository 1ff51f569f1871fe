// The door: what other threads call.
#include "engine/engine_impl.h"

#include <utility>

#include "base/client_share.h"
#include "base/log.h"
#include "engine/request_check.h"

namespace baton::engine {
namespace {

// A submission and an abort of each live request, and room for what is not counted (declines, revocations).
size_t inbox_capacity(const EngineConfig& config) {
  return 2 * (static_cast<size_t>(config.max_waiting_requests) + static_cast<size_t>(config.max_num_seqs)) + 1024;
}

// After its deadline drain aborts the rest, which takes a step at most.
constexpr auto kAbortPatience = std::chrono::seconds(30);

}  // namespace

EngineImpl::EngineImpl(EngineConfig config, int vocab_size, const Clock& clock,
                       std::unique_ptr<MetricRegistry> own_registry)
    : config_(std::move(config)),
      vocab_size_(vocab_size),
      clock_(clock),
      own_registry_(std::move(own_registry)),
      inbox_(inbox_capacity(config_)),
      seeds_(config_.seed) {}

Result<std::unique_ptr<EngineImpl>> EngineImpl::create(EngineConfig config, int vocab_size, const Clock& clock,
                                                       std::unique_ptr<MetricRegistry> own_registry,
                                                       const MakeCore& make_core) {
  std::unique_ptr<EngineImpl> engine(new EngineImpl(std::move(config), vocab_size, clock, std::move(own_registry)));
  EngineCore::Hooks hooks{
      .on_end =
          [self = engine.get()](const std::string& id) {
            std::lock_guard lock(self->door_);
            self->live_.erase(id);
            // Whoever hears of the end finds it in the statistics, its offer included.
            self->stats_ = self->core_->stats();
          },
      .on_leave_queue = [self = engine.get()](const std::string& client) { self->leave_queue(client); }};
  auto core = make_core(std::move(hooks), [self = engine.get()] { self->wake(); });
  if (!core) return fail(std::move(core).error());
  engine->core_ = *std::move(core);
  engine->stats_ = engine->core_->stats();
  engine->thread_ = std::thread([self = engine.get()] { self->run(); });
  return engine;
}

EngineImpl::~EngineImpl() {
  stop_thread();
  core_.reset();
}

void EngineImpl::stop_thread() {
  inbox_.close();
  if (thread_.joinable()) thread_.join();
}

Result<void> EngineImpl::submit(EngineRequest request, OutputCallback on_output) {
  auto admitted = admit(request, on_output);
  if (!admitted) decline_rejected(request);
  return admitted;
}

Result<void> EngineImpl::admit(EngineRequest& request, OutputCallback& on_output) {
  BATON_TRY(check_request(request, config_, vocab_size_));
  std::lock_guard lock(door_);
  if (dead_) return fail(Code::kUnavailable, "the engine has stopped: {}", reason_);
  if (draining_) return fail(Code::kUnavailable, "the engine is shutting down");
  if (live_.contains(request.id)) {
    return fail(Code::kAlreadyExists, "request id {:?} is in use by a live request", request.id);
  }
  BATON_TRY(check_room(request.client));
  auto& seed = request.sampling.seed;
  if (!seed && request.kv_transfer) seed = request.kv_transfer->baton_seed;
  const bool drawn = !seed;
  if (drawn) seed = seeds_.next();
  const auto id = request.id;
  const auto client = request.client;
  Command command = Submission{std::move(request), std::move(on_output), clock_.now(), drawn};
  if (!inbox_.try_push(std::move(command))) {
    request = std::move(std::get<Submission>(command).request);
    return fail(Code::kResourceExhausted, "the engine's queue is full: try again later");
  }
  ++queued_;
  ++queued_of_[client];
  live_.emplace(id, false);
  return {};
}

// No client takes all of the queue.
Result<void> EngineImpl::check_room(const std::string& client) const {
  const int64_t room = config_.max_waiting_requests - queued_;
  const auto mine = queued_of_.find(client);
  if (room <= 0) {
    return fail(Code::kResourceExhausted, "{} requests are waiting, which is the bound: try again later",
                config_.max_waiting_requests);
  }
  if (mine != queued_of_.end() && mine->second >= client_share(room)) {
    return fail(Code::kResourceExhausted,
                "{} of {} waiting requests are yours, which is a client's share: try again later", mine->second,
                queued_);
  }
  return {};
}

void EngineImpl::leave_queue(const std::string& client) {
  std::lock_guard lock(door_);
  --queued_;
  const auto mine = queued_of_.find(client);
  if (mine != queued_of_.end() && --mine->second == 0) queued_of_.erase(mine);
}

// The prefill engine need not wait for its lease to end.
void EngineImpl::decline_rejected(const EngineRequest& request) {
  if (!request.kv_transfer || !request.kv_transfer->do_remote_prefill) return;
  (void)inbox_.try_push(Decline{*request.kv_transfer});
}

void EngineImpl::end(const std::string& id, FinishReason reason) {
  std::lock_guard lock(door_);
  const auto found = live_.find(id);
  // An id that is not live may still name an offer. That one may be lost when the queue is full: its lease ends it.
  if (found == live_.end()) {
    (void)inbox_.try_push(Abort{id, reason});
    return;
  }
  if (!std::exchange(found->second, true)) (void)inbox_.try_push(Abort{id, reason});
}

int64_t EngineImpl::abort_all() {
  std::lock_guard lock(door_);
  for (auto& [id, aborting] : live_) {
    if (!std::exchange(aborting, true)) (void)inbox_.try_push(Abort{id});
  }
  return static_cast<int64_t>(live_.size());
}

void EngineImpl::reset_prefix_cache() {
  reset_requested_ = true;
  wake();
}

// One wake at most is in the queue. A full queue has the thread awake anyway.
void EngineImpl::wake() {
  if (!wake_pending_.exchange(true)) (void)inbox_.try_push(Wake{});
}

EngineStats EngineImpl::stats() const {
  std::lock_guard lock(door_);
  return stats_;
}
bool EngineImpl::healthy() const {
  std::lock_guard lock(door_);
  return !dead_;
}
std::string EngineImpl::health_reason() const {
  std::lock_guard lock(door_);
  return reason_;
}

// A request leaves live_ before its last output is delivered, so that its id is free when the client hears of the end.
// Only the end of the thread says that every callback has returned; what they lead to may then be destroyed.
void EngineImpl::drain(Duration timeout) {
  finish_requests(timeout);
  stop_thread();
}

void EngineImpl::finish_requests(Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(door_);
  draining_ = true;
  const auto ended = [&] { return dead_ || live_.empty(); };
  changed_.wait_until(lock, deadline, [&] { return dead_ || (live_.empty() && stats_.offers_held == 0); });
  if (ended()) return;
  lock.unlock();
  log_warning("drain aborts {} requests", abort_all());
  lock.lock();
  changed_.wait_for(lock, kAbortPatience, ended);
}

}  // namespace baton::engine
