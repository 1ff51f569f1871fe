// The I/O of one generation: carries out what RequestFsm decides and reports back. One coroutine per request.
#include <openssl/rand.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>

#include "base/log.h"
#include "net/client_name.h"
#include "net/sse.h"
#include "proxy/proxy_state.h"
#include "wire/ordered_json.h"

namespace baton::proxy {
namespace {

namespace asio = net::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kAbortTimeout = std::chrono::seconds(2);
constexpr Duration kDrainTimeout = std::chrono::seconds(1);

std::string make_uuid() {
  unsigned char b[16];
  RAND_bytes(b, sizeof(b));
  b[6] = static_cast<unsigned char>((b[6] & 0x0f) | 0x40);
  b[8] = static_cast<unsigned char>((b[8] & 0x3f) | 0x80);
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", b[i]);
  }
  return text;
}

// The client's own id when it is fit for headers, logs and metrics.
std::string request_id_of(const net::HttpRequest& request) {
  const auto given = request.headers.get("X-Request-Id");
  const bool fit = given && !given->empty() && given->size() <= 128 &&
                   std::ranges::all_of(*given, [](char c) { return c > 0x20 && c < 0x7f && c != '"'; });
  return fit ? std::string(*given) : make_uuid();
}

// Best effort: P's lease ends by itself if this does not arrive.
net::Task<void> send_abort(State state, net::HttpClientRequest request) {
  state->metrics.aborts_sent.add();
  auto answer = co_await state->client->request(std::move(request));
  if (!answer) log_debug("event=abort_failed error={}", log_quoted(answer.error().message()));
}

// Reads a finished stream to its last byte, so that the connection serves again.
net::Task<void> drain(State state, std::unique_ptr<net::HttpClientStream> stream) {
  asio::steady_timer limit(state->executor, kDrainTimeout);
  limit.async_wait([&](boost::system::error_code error) {
    if (!error) stream->close();
  });
  for (auto piece = co_await stream->read_piece(); piece && !piece->empty();) piece = co_await stream->read_piece();
  limit.cancel();
  // The timer's callback may be queued: it refers to this frame.
  co_await asio::post(state->executor, asio::use_awaitable);
}

std::optional<DecodeFirst> decode_first(const ProxyState& state) {
  if (state.metaserver.empty()) return std::nullopt;
  return DecodeFirst{.metaserver = state.metaserver, .key = make_uuid()};
}

class GenerationDriver final : public MetaserverClient {
 public:
  GenerationDriver(State state, const net::HttpRequest& request, net::HttpResponder& responder, RequestPlan plan)
      : state_(std::move(state)),
        responder_(responder),
        headers_(engine_headers(*state_, request.headers)),
        request_id_(request_id_of(request)),
        path_(request.path),
        stream_wanted_(plan.stream),
        decode_first_(decode_first(*state_)),
        fsm_(std::move(plan), request_id_, state_->options.retry, state_->instances, decode_first_),
        delay_(state_->executor) {
    headers_.set("X-Forwarded-For", net::client_address(request, state_->options.forwarders));
    if (decode_first_) state_->announced[decode_first_->key] = this;
  }
  ~GenerationDriver() override {
    if (decode_first_) state_->announced.erase(decode_first_->key);
    if (side_owner_) *side_owner_ = nullptr;
  }
  GenerationDriver(const GenerationDriver&) = delete;
  GenerationDriver& operator=(const GenerationDriver&) = delete;

  std::shared_ptr<SidePrefill> metaserver_called(const std::string& key, Json params) override {
    if (side_ && side_key_ == key) return side_;
    auto actions = fsm_.handle(MetaserverCalled{.key = key, .params = std::move(params)}, state_->clock.now());
    if (const auto* refusal = std::get_if<AnswerMetaserver>(&actions.back()); refusal && refusal->status == 404) {
      return nullptr;
    }
    if (std::holds_alternative<Finish>(actions.back())) return nullptr;
    side_ = std::make_shared<SidePrefill>(state_->executor);
    side_key_ = key;
    side_owner_ = std::make_shared<GenerationDriver*>(this);
    asio::co_spawn(state_->executor, run_side(state_, side_, side_owner_, headers_, path_, std::move(actions)),
                   asio::detached);
    return side_;
  }

  net::Task<void> run() {
    const TimePoint begin = state_->clock.now();
    responder_.on_client_gone([this] { leave(); });
    std::optional<Event> event = Begin{};
    while (event) {
      auto actions = fsm_.handle(std::move(*event), state_->clock.now());
      event.reset();
      if (state_->instances.take_probe_wish()) state_->probe_timer.cancel();
      for (auto& action : actions) {
        auto next = co_await std::visit([this](auto& each) { return perform(each); }, action);
        if (next) event = std::move(next);
      }
      // Whatever was under way when the client left: the machine hears of that, not of the call that was cut.
      if (gone_ && !finished_) event = ClientGone{};
      if (finished_) event.reset();
    }
    responder_.on_client_gone(nullptr);
    if (stream_ && fsm_.summary().status == 200 && !fsm_.summary().cut_after_first_byte)
      asio::co_spawn(state_->executor, drain(state_, std::move(stream_)), asio::detached);
    report(begin);
  }

 private:
  using Next = net::Task<std::optional<Event>>;

  // The client has gone: cuts whatever is being waited for.
  void leave() {
    gone_ = true;
    if (call_) call_->cancel();
    if (stream_) stream_->close();
    delay_.cancel();
  }

  std::optional<net::HttpClientRequest> call_to(InstanceId id, const std::string& request_id, std::string body,
                                                Duration timeout) {
    auto call = state_->request_to(id, "POST", path_);
    if (!call) return std::nullopt;
    call->headers = headers_;
    call->headers.set("X-Request-Id", request_id);
    call->body = std::move(body);
    call->head_timeout = timeout;
    call->idle_timeout = state_->options.idle_timeout;
    call_ = call->cancellation = std::make_shared<net::HttpCancellation>();
    return call;
  }
  static std::unexpected<Status> removed() { return fail(Code::kUnavailable, "the instance has been removed"); }

  Next perform(CallPrefill& action) {
    if (gone_) co_return std::nullopt;
    auto call = call_to(action.instance, action.request_id, std::move(action.body), state_->options.prefill_timeout);
    if (!call) co_return PrefillAnswered{removed()};
    auto answer = co_await state_->client->request(std::move(*call));
    call_.reset();
    if (answer) answer->headers = end_to_end(answer->headers);
    co_return PrefillAnswered{std::move(answer)};
  }

  Next perform(CallDecode& action) {
    if (gone_) co_return std::nullopt;
    auto call =
        call_to(action.instance, action.request_id, std::move(action.body), state_->options.first_token_timeout);
    if (!call) co_return DecodeAnswered{removed()};
    reader_ = net::SseReader();
    events_.clear();
    auto stream = co_await state_->client->request_stream(std::move(*call));
    call_.reset();
    if (!stream) co_return DecodeAnswered{fail(stream.error())};
    stream_ = std::move(*stream);
    const auto type = stream_->headers().get("Content-Type");
    if (stream_wanted_ && stream_->status() == 200 && type && type->starts_with("text/event-stream"))
      co_return DecodeStreaming{};
    auto answer = co_await read_whole();
    stream_.reset();
    co_return DecodeAnswered{std::move(answer)};
  }

  net::Task<Result<net::HttpResponse>> read_whole() {
    net::HttpResponse answer{.status = stream_->status(), .headers = end_to_end(stream_->headers()), .body = {}};
    for (;;) {
      BATON_CO_TRY_ASSIGN(auto piece, co_await stream_->read_piece());
      if (piece.empty()) co_return answer;
      answer.body += piece;
    }
  }

  Next perform(ReadDecode&) {
    while (events_.empty()) {
      if (!co_await flush()) co_return std::nullopt;
      if (gone_) co_return std::nullopt;
      auto piece = co_await stream_->read_piece();
      if (!piece) co_return DecodeEnded{fail(piece.error())};
      if (piece->empty()) co_return DecodeEnded{};
      for (auto& each : reader_.feed(*piece)) events_.push_back(std::move(each));
      if (reader_.overflowed()) co_return DecodeEnded{fail(Code::kDataLoss, "an event is larger than the proxy holds")};
    }
    DecodeEvent event{std::move(events_.front())};
    events_.pop_front();
    co_return event;
  }

  Next perform(Delay& action) {
    if (gone_) co_return std::nullopt;
    delay_.expires_after(action.time);
    co_await delay_.async_wait(kAwait);
    co_return DelayOver{};
  }

  Next perform(Respond& action) {
    if (!gone_) {
      action.response.headers.set("X-Request-Id", request_id_);
      (void)co_await responder_.respond(std::move(action.response));
    }
    co_return std::nullopt;
  }

  // Events that arrived together leave together.
  Next perform(WriteEvent& action) {
    unsent_ += net::sse_event(action.data);
    co_return std::nullopt;
  }

  Next perform(EndStream&) {
    if (co_await flush() && !gone_) (void)co_await responder_.end_stream();
    co_return std::nullopt;
  }

  Next perform(DropDecode&) {
    if (stream_) stream_->close();
    stream_.reset();
    co_return std::nullopt;
  }

  Next perform(AbortPrefill& action) {
    tell_to_abort(state_, headers_, action);
    co_return std::nullopt;
  }

  // The metaserver's calls are answered by run_side().
  Next perform(AnswerMetaserver&) { co_return std::nullopt; }

  Next perform(DropPrefill&) {
    if (side_owner_) *std::exchange(side_owner_, nullptr) = nullptr;
    if (side_ && side_->call) side_->call->cancel();
    co_return std::nullopt;
  }

  Next perform(Finish&) {
    finished_ = true;
    co_return std::nullopt;
  }

  // The prefill of a request that waits at D. `owner` becomes null when the request has ended or given this prefill up.
  static net::Task<void> run_side(State state, std::shared_ptr<SidePrefill> side,
                                  std::shared_ptr<GenerationDriver*> owner, net::HttpHeaders headers, std::string path,
                                  std::vector<Action> actions) {
    while (side->status == 0) {
      std::optional<Result<net::HttpResponse>> answered;
      for (auto& action : actions) {
        if (auto* call = std::get_if<CallPrefill>(&action)) {
          answered = co_await side_prefill(state, *side, headers, path, std::move(*call));
        } else if (const auto* abort = std::get_if<AbortPrefill>(&action)) {
          tell_to_abort(state, headers, *abort);
        } else if (auto* answer = std::get_if<AnswerMetaserver>(&action)) {
          side->finish(answer->status, std::move(answer->message));
        }
      }
      if (side->status != 0) break;
      if (!answered || *owner == nullptr) {
        const bool good = answered && *answered && (*answered)->status == 200;
        side->finish(good ? 200 : 502, "the request has ended");
        break;
      }
      actions = (*owner)->fsm_.handle(PrefillAnswered{std::move(*answered)}, state->clock.now());
      if (state->instances.take_probe_wish()) state->probe_timer.cancel();
    }
  }

  static net::Task<Result<net::HttpResponse>> side_prefill(State state, SidePrefill& side, net::HttpHeaders headers,
                                                           std::string path, CallPrefill action) {
    auto call = state->request_to(action.instance, "POST", path);
    if (!call) co_return removed();
    call->headers = std::move(headers);
    call->headers.set("X-Request-Id", action.request_id);
    call->body = std::move(action.body);
    call->head_timeout = state->options.prefill_timeout;
    call->idle_timeout = state->options.idle_timeout;
    side.call = call->cancellation = std::make_shared<net::HttpCancellation>();
    auto answer = co_await state->client->request(std::move(*call));
    side.call.reset();
    co_return answer;
  }

  static void tell_to_abort(const State& state, const net::HttpHeaders& headers, const AbortPrefill& action) {
    auto call = state->request_to(action.instance, "POST", "/abort_requests");
    if (!call) return;
    call->headers = headers;
    call->body = Json{{"request_ids", Json::array({action.request_id})}}.dump();
    call->head_timeout = call->idle_timeout = kAbortTimeout;
    asio::co_spawn(state->executor, send_abort(state, std::move(*call)), asio::detached);
  }

  // False when the client has gone.
  net::Task<bool> flush() {
    if (gone_) co_return false;
    if (unsent_.empty()) co_return true;
    if (!responder_.answered()) {
      net::HttpHeaders headers;
      headers.add("Content-Type", "text/event-stream; charset=utf-8");
      headers.add("Cache-Control", "no-cache");
      headers.add("X-Request-Id", request_id_);
      if (!co_await responder_.begin_stream(200, std::move(headers))) leave();
    }
    if (!gone_ && !co_await responder_.write_chunk(unsent_)) leave();
    unsent_.clear();
    co_return !gone_;
  }

  std::string instance_name(std::optional<InstanceId> id) const {
    const Instance* instance = id ? state_->instances.find(*id) : nullptr;
    return instance ? net::format_host_port(instance->host, instance->port) : "-";
  }

  void report(TimePoint begin) {
    const auto& summary = fsm_.summary();
    const TimePoint end = state_->clock.now();
    state_->metrics.count_end(summary, begin, end);
    log_info(
        "event=request_end request_id={} path={} status={} prefill={} decode={} prefill_attempts={} "
        "decode_attempts={} resumes={} handed_off={} prompt_tokens={} completion_tokens={} cached_tokens={} "
        "first_byte_s={:.4f} "
        "total_s={:.4f} failure={}",
        log_quoted(request_id_), path_, summary.status, instance_name(summary.prefill), instance_name(summary.decode),
        summary.prefill_attempts, summary.decode_attempts, summary.resumes, summary.handed_off, summary.prompt_tokens,
        summary.completion_tokens, summary.cached_tokens,
        summary.first_byte_at ? seconds_between(begin, *summary.first_byte_at) : -1.0, seconds_between(begin, end),
        log_quoted(summary.failure));
  }

  State state_;
  net::HttpResponder& responder_;
  net::HttpHeaders headers_;
  std::string request_id_, path_;
  bool stream_wanted_;
  const std::optional<DecodeFirst> decode_first_;
  RequestFsm fsm_;
  std::shared_ptr<SidePrefill> side_;  // of the attempt with this key
  std::string side_key_;
  std::shared_ptr<GenerationDriver*> side_owner_;
  asio::steady_timer delay_;
  std::shared_ptr<net::HttpCancellation> call_;
  std::unique_ptr<net::HttpClientStream> stream_;
  net::SseReader reader_;
  std::deque<std::string> events_;
  std::string unsent_;
  bool gone_ = false, finished_ = false;
};

}  // namespace

net::Task<void> handle_metaserver(State state, net::HttpRequest& request, net::HttpResponder& responder) {
  state->metrics.metaserver_calls.add();
  constexpr std::string_view kKey = "key=";
  const std::string key = request.query.starts_with(kKey) ? request.query.substr(kKey.size()) : std::string();
  Json params = wire::parse_ordered_json(request.body, kMaxJsonDepth).value_or(Json());
  request.body = {};
  if (!params.is_object()) {
    (void)co_await responder.respond(error_answer(400, "BadRequestError", "the body is not a JSON object"));
    co_return;
  }
  const auto found = state->announced.find(key.substr(0, key.rfind('-')));
  const auto side =
      found == state->announced.end() ? nullptr : found->second->metaserver_called(key, std::move(params));
  if (side == nullptr) {
    (void)co_await responder.respond(error_answer(404, "NotFoundError", "no request waits for this call"));
    co_return;
  }
  while (side->status == 0 && !responder.client_gone()) {
    side->wake.expires_after(std::chrono::seconds(1));
    co_await side->wake.async_wait(kAwait);
  }
  if (side->status == 200) {
    (void)co_await responder.respond(json_response(200, R"({"status":"ok"})"));
  } else if (side->status != 0) {
    (void)co_await responder.respond(error_answer(side->status, "BadGatewayError", side->message));
  }
}

net::Task<void> handle_generation(State state, net::HttpRequest& request, net::HttpResponder& responder) {
  const auto& options = state->options;
  const auto client = net::client_name(request, options.api_keys.size() > 1, options.forwarders);
  if (const auto answered = state->door.ask(client, options.max_in_flight); answered != Door::Answer::kOpen) {
    state->metrics.refused.add();
    auto answer = error_answer(429, "TooManyRequestsError",
                               answered == Door::Answer::kFull
                                   ? "the proxy has as many requests as it may hold; try again"
                                   : "the proxy has as many requests of yours as a client's share; try again");
    answer.headers.add("Retry-After", "1");
    (void)co_await responder.respond(std::move(answer));
    co_return;
  }
  auto plan = plan_request(request.path, request.body);
  if (!plan) {
    (void)co_await responder.respond(error_answer(400, "BadRequestError", plan.error().message()));
    co_return;
  }
  request.body = {};
  struct Count {
    ProxyState& state;
    const std::string& client;
    Count(ProxyState& of, const std::string& who) : state(of), client(who) {
      state.door.enter(client);
      state.metrics.in_flight.set(state.door.in_flight());
    }
    ~Count() {
      state.door.leave(client);
      state.metrics.in_flight.set(state.door.in_flight());
    }
  } count(*state, client);
  GenerationDriver driver(state, request, responder, std::move(*plan));
  co_await driver.run();
}

}  // namespace baton::proxy
