#include "sim/proxy_node.h"

#include <deque>
#include <utility>

namespace baton::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kProbeInterval = seconds(1);
constexpr Duration kAnswerTimeout = seconds(15);

std::string body_of(const ClientPlan& client) {
  proxy::Json body = {{"model", "m"},
                      {"prompt", client.prompt},
                      {"max_tokens", client.max_tokens},
                      {"temperature", client.temperature},
                      {"return_token_ids", true},
                      {"stream", client.stream}};
  if (client.stream) body["stream_options"] = {{"include_usage", true}};
  if (client.seed) body["seed"] = *client.seed;
  if (client.frequency_penalty != 0) body["frequency_penalty"] = client.frequency_penalty;
  return body.dump();
}

}  // namespace

// One request of a client.
class ProxyNode::Request {
 public:
  Request(ProxyNode& proxy, const ClientPlan& client, ClientView& view)
      : proxy_(proxy),
        client_(client),
        view_(view),
        fsm_(proxy::plan_request("/v1/completions", body_of(client)).value(), fmt::format("c{}", client.id), {},
             proxy.instances_) {}

  bool finished() const { return finished_; }
  const proxy::RequestFsm::Summary& summary() const { return fsm_.summary(); }

  void handle(proxy::Event event) {
    if (finished_) return;
    auto actions = fsm_.handle(std::move(event), proxy_.process_.now());
    for (auto& action : actions) std::visit([this](auto& each) { perform(each); }, action);
    if (proxy_.instances_.take_probe_wish()) proxy_.probe_all();
    // A call has a limit, a delay an end; and nothing else brings an event.
    const bool called = call_ != nullptr && (!call_->closed || end_ || !events_.empty());
    if (!finished_ && !delaying_ && !called) {
      world().violation(Wrong::kHang, "the request of client {} waits for nothing", client_.id);
    }
  }

  void leave() {
    if (finished_ || view_.over()) return;
    view_.left = true;
    proxy_.world_.trace("client {} leaves", client_.id);
    close_call();
    handle(proxy::ClientGone{});
  }

 private:
  World& world() { return proxy_.world_; }

  CallPtr open_call(proxy::InstanceId id, const std::string& request_id, std::string body) {
    auto* engine = proxy_.engine(id);
    auto call = std::make_shared<Call>();
    call->node = engine->plan().name;
    call->request_id = request_id;
    call->body = std::move(body);
    call_ = call;
    events_.clear();
    waiting_ = false;
    world().trace("proxy asks {} for {}", call->node, request_id);
    return call;
  }
  void close_call() {
    if (call_ == nullptr) return;
    const auto call = std::exchange(call_, nullptr);
    if (std::exchange(call->closed, true)) return;
    proxy_.engines_.at(call->node)->hang_up(call);
  }
  // What waits longer than this for `call` is over. Every reply begins it anew.
  void set_limit(const CallPtr& call, std::function<void()> passed) {
    proxy_.process_.after(kAnswerTimeout, [this, call, mine = ++limit_, passed = std::move(passed)] {
      if (mine != limit_ || call != call_ || call->closed) return;
      world().trace("proxy gives up waiting for {}", call->request_id);
      passed();
    });
  }

  void perform(proxy::CallPrefill& action) {
    auto call = open_call(action.instance, action.request_id, std::move(action.body));
    call->on_reply = [this, call](Reply reply) {
      if (call != call_) return;
      call->closed = true;
      call_ = nullptr;
      if (auto* whole = std::get_if<Result<net::HttpResponse>>(&reply)) {
        return handle(proxy::PrefillAnswered{std::move(*whole)});
      }
      handle(proxy::PrefillAnswered{fail(Code::kUnavailable, "connection reset")});
    };
    set_limit(call, [this] {
      close_call();
      handle(proxy::PrefillAnswered{fail(Code::kDeadlineExceeded, "no answer in time")});
    });
    proxy_.engines_.at(call->node)->request(call);
  }

  void perform(proxy::CallDecode& action) {
    auto call = open_call(action.instance, action.request_id, std::move(action.body));
    call->on_reply = [this, call](Reply reply) {
      if (call == call_) std::visit([&](auto& each) { replied(call, each); }, reply);
    };
    set_limit(call, [this] {
      close_call();
      handle(proxy::DecodeAnswered{fail(Code::kDeadlineExceeded, "no answer in time")});
    });
    proxy_.engines_.at(call->node)->request(call);
  }
  void replied(const CallPtr& call, Result<net::HttpResponse>& whole) {
    call->closed = true;
    call_ = nullptr;
    handle(proxy::DecodeAnswered{std::move(whole)});
  }
  void replied(const CallPtr& call, StreamBegins&) {
    set_idle_limit(call);
    handle(proxy::DecodeStreaming{});
  }
  void replied(const CallPtr& call, StreamEvent& event) {
    set_idle_limit(call);
    events_.push_back(std::move(event.data));
    read();
  }
  void replied(const CallPtr& call, StreamEnds& ends) {
    call->closed = true;
    end_ = ends.how;
    read();
  }
  void set_idle_limit(const CallPtr& call) {
    set_limit(call, [this] {
      const auto closing = call_;
      end_ = fail(Code::kDeadlineExceeded, "the stream stands still");
      proxy_.engines_.at(closing->node)->hang_up(closing);
      closing->closed = true;
      read();
    });
  }
  void perform(proxy::ReadDecode&) {
    waiting_ = true;
    proxy_.process_.after(microseconds(1), [this] { read(); });
  }
  void read() {
    if (!waiting_ || finished_) return;
    if (!events_.empty()) {
      waiting_ = false;
      auto data = std::move(events_.front());
      events_.pop_front();
      return handle(proxy::DecodeEvent{std::move(data)});
    }
    if (!end_) return;
    waiting_ = false;
    handle(proxy::DecodeEnded{*std::exchange(end_, std::nullopt)});
  }

  void perform(proxy::Delay& action) {
    delaying_ = true;
    proxy_.process_.after(action.time, [this] {
      delaying_ = false;
      handle(proxy::DelayOver{});
    });
  }
  void perform(proxy::Respond& action) {
    if (view_.over()) return world().violation(Wrong::kTokens, "client {} is answered twice", client_.id);
    world().trace("client {} hears {}", client_.id, action.response.status);
    view_.response = std::move(action.response);
  }
  void perform(proxy::WriteEvent& action) {
    if (view_.left) return;
    if (action.data.starts_with(R"({"error")")) world().trace("client {} hears {}", client_.id, action.data);
    if (view_.over()) return world().violation(Wrong::kTokens, "client {} hears more after the end", client_.id);
    view_.events.push_back(std::move(action.data));
  }
  void perform(proxy::EndStream&) {
    world().trace("client {} has its stream", client_.id);
    view_.stream_ended = true;
  }
  void perform(proxy::DropDecode&) {
    close_call();
    end_.reset();
    events_.clear();
    waiting_ = false;
  }
  void perform(proxy::AbortPrefill& action) {
    auto* engine = proxy_.engine(action.instance);
    world().trace("proxy aborts {} at {}", action.request_id, engine->plan().name);
    engine->abort_requests(action.request_id);
  }
  void perform(proxy::AnswerMetaserver&) {}
  void perform(proxy::DropPrefill&) {}
  void perform(proxy::Finish&) {
    close_call();
    finished_ = true;
  }

  ProxyNode& proxy_;
  const ClientPlan& client_;
  ClientView& view_;
  proxy::RequestFsm fsm_;
  CallPtr call_;
  std::deque<std::string> events_;
  std::optional<Result<void>> end_;
  uint64_t limit_ = 0;
  bool waiting_ = false, delaying_ = false, finished_ = false;
};

ProxyNode::ProxyNode(World& world, const std::map<std::string, std::unique_ptr<EngineNode>>& engines)
    : world_(world), engines_(engines), process_(world, "proxy") {}

ProxyNode::~ProxyNode() { process_.end_life(); }

void ProxyNode::start() {
  process_.begin_life();
  for (const auto& plan : world_.scenario().engines) {
    const auto id = instances_.add(plan.prefill ? proxy::Role::kPrefill : proxy::Role::kDecode, plan.name, 1);
    instances_.note_probe(*id, proxy::Outcome::kOk, process_.now());
  }
  const auto again = [this](const auto& self) -> void {
    process_.after(kProbeInterval, [this, self] {
      probe_all();
      self(self);
    });
  };
  again(again);
}

EngineNode* ProxyNode::engine(proxy::InstanceId id) { return engines_.at(instances_.find(id)->host).get(); }

void ProxyNode::probe_all() {
  for (const auto& each : instances_.all()) probe(each.id);
}

void ProxyNode::probe(proxy::InstanceId id) {
  auto* node = engine(id);
  const auto note = [this, id](proxy::Outcome outcome, Duration after) {
    process_.after(after, [this, id, outcome] { instances_.note_probe(id, outcome, process_.now()); });
  };
  if (world_.strikes(Fault::kHttpLost, node->plan().name)) return note(proxy::Outcome::kSlow, kProbeInterval);
  if (!node->process().alive()) return note(proxy::Outcome::kUnreachable, microseconds(200));
  if (node->process().paused()) return note(proxy::Outcome::kSlow, kProbeInterval);
  note(proxy::Outcome::kOk, microseconds(300));
}

void ProxyNode::begin(const ClientPlan& client) {
  world_.trace("client {} asks", client.id);
  auto* request = requests_.emplace_back(std::make_unique<Request>(*this, client, views_[client.id])).get();
  if (client.leaves_after) process_.after(*client.leaves_after, [request] { request->leave(); });
  request->handle(proxy::Begin{});
}

bool ProxyNode::all_over() const {
  return requests_.size() == world_.scenario().clients.size() &&
         std::ranges::all_of(requests_, [](const auto& each) { return each->finished(); });
}

RunCounts ProxyNode::counts() const {
  RunCounts counts;
  for (const auto& request : requests_) {
    counts.resumes += request->summary().resumes;
    counts.colocated += request->summary().colocated;
  }
  return counts;
}

std::string ProxyNode::leftovers() const {
  std::string text;
  for (const auto& each : instances_.all()) {
    if (each.in_flight != 0 || std::abs(each.active_tokens) > 1e-6 || std::abs(each.active_kv) > 1e-6) {
      text += fmt::format(" {}: {} in flight, {} tokens, {} kv", each.host, each.in_flight, each.active_tokens,
                          each.active_kv);
    }
  }
  return text;
}

}  // namespace baton::sim
