// The life of a simulated engine process and its steps. What it says to the proxy is in engine_server.cc.
#include "sim/engine_node.h"

#include <utility>

#include "base/check.h"
#include "sim/engine_answer.h"

namespace baton::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

void RunCounts::add(const RunCounts& other) {
  requests += other.requests;
  greedy += other.greedy;
  seeded += other.seeded;
  unseeded += other.unseeded;
  full += other.full;
  errors += other.errors;
  cut += other.cut;
  left += other.left;
  handed_over += other.handed_over;
  failed_pulls += other.failed_pulls;
  checksum_failures += other.checksum_failures;
  stale += other.stale;
  expired += other.expired;
  mismatches += other.mismatches;
  preemptions += other.preemptions;
  sent_back += other.sent_back;
  resumes += other.resumes;
  colocated += other.colocated;
}

EngineNode::EngineNode(World& world, HandoffNet& net, const EnginePlan& plan, DrawnSeeds& seeds)
    : world_(world), net_(net), plan_(plan), seeds_(seeds), process_(world, plan.name) {}

EngineNode::~EngineNode() {
  process_.end_life();
  core_.reset();
}

void EngineNode::boot() {
  BATON_CHECK(core_ == nullptr);
  process_.begin_life();
  registry_ = std::make_unique<MetricRegistry>();
  HandoffIdentity identity{.engine_id = plan_.name, .model_fingerprint = {}, .nonce = world_.random() | 1};
  CoreOptions options{.block_size = plan_.block_size,
                      .blocks = plan_.blocks,
                      .slots = plan_.slots,
                      .llama = world_.scenario().llama,
                      .state_layers = world_.scenario().state_layers,
                      .recompute_scheduler = plan_.recompute_scheduler,
                      .preempt = plan_.preempt,
                      .role = plan_.prefill ? engine::KvRole::kProducer : engine::KvRole::kConsumer,
                      .make_host = [&](engine::KvHostRequest request) -> Result<std::unique_ptr<engine::KvHost>> {
                        BATON_TRY_ASSIGN(auto host, SimHost::make(net_, process_, plan_.prefill, identity, request));
                        host_ = host.get();
                        return host;
                      },
                      .wake = [this] { plan_step(microseconds(10)); }};
  auto core = make_core(options, pool_, *registry_, process_);
  BATON_CHECK(core.has_value(), "{}", core.error().to_string());
  core_ = *std::move(core);
  world_.trace("{} starts", plan_.name);
}

// Everything is lost at once; connections break as the kernel closes them.
void EngineNode::crash() {
  if (core_ == nullptr) return;
  world_.trace("{} dies", plan_.name);
  before_ = counts();
  process_.end_life();
  core_.reset();
  host_ = nullptr;
  live_.clear();
  commands_.clear();
  step_at_.reset();
  ++planned_;
  for (const auto& call : std::exchange(calls_, {})) {
    // Behind what is on its way already.
    world_.at(std::max(world_.now() + microseconds(100), call->last_to_proxy + Duration(1)), [call] {
      if (call->silent || std::exchange(call->closed, true)) return;
      const auto reset = fail(Code::kUnavailable, "connection reset");
      call->on_reply(call->begun ? Reply(StreamEnds{reset}) : Reply(Result<net::HttpResponse>(reset)));
    });
  }
}

void EngineNode::clock_jumped() {
  if (host_ == nullptr) return;
  if (auto* producer = host_->sim_producer()) producer->clock_jumped();
  if (auto* consumer = host_->sim_consumer()) consumer->clock_jumped();
}

void EngineNode::plan_step(Duration delay) {
  const TimePoint when = world_.now() + delay;
  if (!process_.alive() || (step_at_ && *step_at_ <= when)) return;
  step_at_ = when;
  process_.after(delay, [this, mine = ++planned_] {
    if (mine == planned_) run_step();
  });
}

void EngineNode::run_step() {
  step_at_.reset();
  for (const auto& command : std::exchange(commands_, {})) command();
  const auto stepped = core_->step();
  if (!stepped)
    return world_.violation(Wrong::kOther, "{}: the engine died: {}", plan_.name, stepped.error().message());
  if (*stepped) {
    Duration time = world_.between(microseconds(200), microseconds(2000));
    if (world_.strikes(Fault::kSlow, plan_.name)) time += world_.between(milliseconds(10), milliseconds(200));
    plan_step(time);
  } else if (core_->handoff_pending() || core_->has_requests()) {
    plan_step(milliseconds(20));
  }
}

std::string EngineNode::leftovers() const {
  if (core_ == nullptr) return "dead";
  const auto stats = core_->stats();
  std::string text;
  const auto say = [&](const char* what, int64_t count) {
    if (count != 0) text += fmt::format(" {} {}", count, what);
  };
  say("running", stats.running);
  say("waiting", stats.waiting);
  say("blocks used", stats.kv_blocks_used);
  say("state slots held", stats.state_slots_held);
  say("offers held", stats.offers_held);
  say("answers open", std::ssize(live_));
  if (core_->handoff_pending()) text += " something with a connector";
  if (auto* producer = host_->sim_producer()) {
    say("live offers", static_cast<int64_t>(producer->fsm().live_offers()));
    say("blocks with offers", producer->fsm().held_blocks());
  }
  if (auto* consumer = host_->sim_consumer()) say("live pulls", static_cast<int64_t>(consumer->fsm().live_pulls()));
  return text;
}

RunCounts EngineNode::counts() const {
  RunCounts counts = before_;
  if (core_ == nullptr) return counts;
  const auto stats = core_->stats();
  counts.mismatches += static_cast<int>(stats.last_token_mismatches);
  counts.failed_pulls += static_cast<int>(stats.transfer_failures);
  counts.preemptions += static_cast<int>(stats.preemptions);
  counts.sent_back += static_cast<int>(stats.recomputed);
  if (auto* producer = host_->sim_producer()) counts.expired += producer->ended(transfer::EndReason::kExpired);
  if (auto* consumer = host_->sim_consumer()) {
    counts.handed_over += consumer->pulled();
    counts.checksum_failures += consumer->checksum_failures();
    counts.stale += consumer->stale();
  }
  return counts;
}

}  // namespace baton::sim
