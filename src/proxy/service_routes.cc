// Every route of the proxy that generates nothing, the headers that travel on, the probes and the metrics.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cctype>
#include <tuple>

#include "base/log.h"
#include "proxy/proxy_state.h"
#include "wire/ordered_json.h"

namespace baton::proxy {
namespace {

namespace asio = net::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kModelsTimeout = std::chrono::seconds(3);
constexpr Duration kServiceTimeout = std::chrono::seconds(30);
constexpr std::string_view kRetryAfter = "1";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string name_of(const Instance& instance) { return net::format_host_port(instance.host, instance.port); }

// Prefill engines first, as the example proxy does; those that are down last.
std::vector<Instance> in_order(const Instances& instances) {
  std::vector<Instance> ordered = instances.all();
  std::erase_if(ordered, [](const Instance& each) { return each.join_by.has_value(); });
  std::ranges::sort(ordered, {}, [](const Instance& each) {
    return std::tuple(each.health == Health::kDown, each.role == Role::kDecode, each.id.value);
  });
  return ordered;
}

// The first engine that answers below 500 answers for all.
net::Task<void> forward_to_any(State state, net::HttpRequest& request, net::HttpResponder& responder,
                               Duration timeout) {
  std::vector<std::string> failed;
  for (const auto& instance : in_order(state->instances)) {
    auto call = state->request_to(instance.id, request.method, request.target);
    if (!call) continue;
    call->headers = engine_headers(*state, request.headers);
    call->body = request.body;
    call->head_timeout = call->idle_timeout = timeout;
    auto answer = co_await state->client->request(std::move(*call));
    if (answer && answer->status < 500) {
      answer->headers = end_to_end(answer->headers);
      (void)co_await responder.respond(std::move(*answer));
      co_return;
    }
    failed.push_back(name_of(instance));
    if (responder.client_gone()) co_return;
  }
  Json body;
  if (failed.empty()) {
    body["error"] = "No available backend instances";
  } else {
    body["error"] = fmt::format("All backend instances failed to serve {}", request.path);
    body["failed"] = failed;
  }
  auto answer = json_response(503, body.dump());
  answer.headers.add("Retry-After", std::string(kRetryAfter));
  (void)co_await responder.respond(std::move(answer));
}

net::Task<void> reset_prefix_cache(State state, net::HttpRequest& request, net::HttpResponder& responder) {
  Json failed = Json::array();
  for (const auto& instance : in_order(state->instances)) {
    auto call = state->request_to(instance.id, "POST", request.target);
    if (!call) continue;
    call->headers = engine_headers(*state, request.headers);
    call->head_timeout = call->idle_timeout = kServiceTimeout;
    auto answer = co_await state->client->request(std::move(*call));
    if (!answer || answer->status / 100 != 2)
      failed.push_back(fmt::format("http://{}{}", name_of(instance), request.path));
  }
  if (failed.empty()) {
    (void)co_await responder.respond({.status = 200, .headers = {}, .body = {}});
  } else {
    (void)co_await responder.respond(json_response(500, Json{{"failed", failed}}.dump()));
  }
}

struct InstancesBody {
  Role role = Role::kPrefill;
  std::vector<net::HostPort> instances;
};

Result<InstancesBody> parse_instances(std::string_view text) {
  const Json body = wire::parse_ordered_json(text, kMaxJsonDepth).value_or(Json());
  if (!body.is_object()) return fail(Code::kInvalidArgument, "the body is not a JSON object");
  InstancesBody parsed;
  const auto type = body.find("type");
  if (type == body.end() || !type->is_string() || (*type != "prefill" && *type != "decode"))
    return fail(Code::kInvalidArgument, "'type' must be \"prefill\" or \"decode\"");
  parsed.role = *type == "prefill" ? Role::kPrefill : Role::kDecode;
  Json list = body.value("instances", Json());
  if (list.is_string()) list = Json::array({list});
  if (!list.is_array() || list.empty() || list.size() > 1024)
    return fail(Code::kInvalidArgument, "'instances' must be \"host:port\" or a list of those");
  for (const auto& each : list) {
    if (!each.is_string()) return fail(Code::kInvalidArgument, "'instances' must hold strings");
    BATON_TRY_ASSIGN(auto parts, net::parse_host_port(each.get<std::string>()));
    if (parts.port == 0) return fail(Code::kInvalidArgument, "'{}' has no port", each.get<std::string>());
    parsed.instances.push_back(std::move(parts));
  }
  return parsed;
}

net::HttpResponse change_instances(ProxyState& state, const net::HttpRequest& request, bool add) {
  const auto parsed = parse_instances(request.body);
  if (!parsed) return error_answer(400, "BadRequestError", parsed.error().message());
  std::vector<std::string> said;
  for (const auto& each : parsed->instances) {
    const std::string name = net::format_host_port(each.host, each.port);
    if (add) {
      const TimePoint join_by =
          state.clock.now() + state.options.waiting_retry_interval * state.options.max_waiting_retries;
      const auto added = state.instances.add(parsed->role, each.host, each.port, join_by);
      said.push_back(name + (added ? " waits for its first probe" : " was there already"));
    } else {
      said.push_back(name + (state.instances.remove(parsed->role, each.host, each.port) ? " drains or is gone"
                                                                                        : " was not there"));
    }
    log_info("event={} role={} instance={}", add ? "instance_added" : "instance_removed", role_name(parsed->role),
             name);
  }
  if (add) state.probe_timer.cancel();  // probe now
  const Json body = {{"message", fmt::format("{}", fmt::join(said, "; "))},
                     {"current_prefill_instances", state.instances.count(Role::kPrefill)},
                     {"current_decode_instances", state.instances.count(Role::kDecode)}};
  return json_response(200, body.dump());
}

net::HttpResponse healthcheck(const ProxyState& state) {
  const Json body = {{"status", "ok"},
                     {"prefill_instances", state.instances.count(Role::kPrefill)},
                     {"decode_instances", state.instances.count(Role::kDecode)},
                     {"request_num", state.in_flight}};
  return json_response(200, body.dump());
}

net::HttpResponse metrics(ProxyState& state) {
  state.metrics.set_instances(state.instances);
  net::HttpResponse response{.status = 200, .headers = {}, .body = state.registry.text()};
  response.headers.add("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  return response;
}

Outcome probe_outcome(const Result<net::HttpResponse>& answer) {
  // An engine without the route is alive; one that answers 5xx says that it is not.
  if (answer) return answer->status < 500 ? Outcome::kOk : Outcome::kFailed;
  return answer.error().code() == Code::kDeadlineExceeded ? Outcome::kSlow : Outcome::kUnreachable;
}

net::Task<void> probe(State state, InstanceId id) {
  auto call = state->request_to(id, "GET", "/health");
  call->connect_timeout = call->head_timeout = call->idle_timeout = state->options.probe_timeout;
  auto answer = co_await state->client->request(std::move(*call));
  state->probing.erase(id);
  const Instance* before = state->instances.find(id);
  if (!before) co_return;
  const Health was = before->health;
  state->instances.note_probe(id, probe_outcome(answer), state->clock.now());
  if (before->health == was) co_return;
  constexpr const char* kNames[] = {"up", "suspect", "down"};
  log_info("event=instance_health role={} instance={} from={} to={}{}{}", role_name(before->role), name_of(*before),
           kNames[static_cast<int>(was)], kNames[static_cast<int>(before->health)],
           answer ? "" : " error=", answer ? "" : answer.error().message());
}

}  // namespace

net::HttpResponse json_response(int status, std::string body) {
  net::HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
  response.headers.add("Content-Type", "application/json");
  return response;
}

net::HttpResponse error_answer(int status, std::string_view type, std::string_view message) {
  return json_response(status, error_json(status, type, message));
}

net::HttpHeaders end_to_end(const net::HttpHeaders& headers) {
  static constexpr std::string_view kHop[] = {"connection",
                                              "keep-alive",
                                              "proxy-authenticate",
                                              "proxy-authorization",
                                              "proxy-connection",
                                              "te",
                                              "trailer",
                                              "transfer-encoding",
                                              "upgrade",
                                              "host",
                                              "content-length",
                                              "date",
                                              "server",
                                              "expect",
                                              "accept-encoding"};
  net::HttpHeaders kept;
  for (const auto& [name, value] : headers.all())
    if (std::ranges::find(kHop, lower(name)) == std::end(kHop)) kept.add(name, value);
  return kept;
}

net::HttpHeaders engine_headers(const ProxyState& state, const net::HttpHeaders& from_client) {
  net::HttpHeaders headers = end_to_end(from_client);
  headers.set("Content-Type", "application/json");
  if (!headers.get("Authorization") && !state.options.engine_api_key.empty())
    headers.add("Authorization", "Bearer " + state.options.engine_api_key);
  return headers;
}

net::Task<void> handle_service(State state, net::HttpRequest& request, net::HttpResponder& responder) {
  const bool get = request.method == "GET" || request.method == "HEAD", post = request.method == "POST";
  const std::string_view path = request.path;
  if (get && path == "/v1/models") co_return co_await forward_to_any(state, request, responder, kModelsTimeout);
  if (post && (path == "/tokenize" || path == "/detokenize"))
    co_return co_await forward_to_any(state, request, responder, kServiceTimeout);
  if (post && path == "/reset_prefix_cache") co_return co_await reset_prefix_cache(state, request, responder);

  net::HttpResponse answer;
  if (get && path == "/healthcheck") {
    answer = healthcheck(*state);
  } else if ((get || post) && (path == "/health" || path == "/ping")) {
    answer.status = state->instances.any_usable(Role::kDecode, state->clock.now()) ? 200 : 503;
  } else if (get && path == "/metrics") {
    answer = metrics(*state);
  } else if (get && path == "/version") {
    answer = json_response(200, Json{{"version", state->options.version}}.dump());
  } else if (post && path == "/instances/add") {
    answer = change_instances(*state, request, true);
  } else if (post && path == "/instances/remove") {
    answer = change_instances(*state, request, false);
  } else {
    static constexpr std::string_view kKnown[] = {"/v1/models",
                                                  "/tokenize",
                                                  "/detokenize",
                                                  "/reset_prefix_cache",
                                                  "/healthcheck",
                                                  "/health",
                                                  "/ping",
                                                  "/metrics",
                                                  "/version",
                                                  "/instances/add",
                                                  "/instances/remove",
                                                  "/v1/completions",
                                                  "/v1/chat/completions"};
    const bool known = std::ranges::find(kKnown, path) != std::end(kKnown);
    answer = known ? error_answer(405, "MethodNotAllowedError", "Method Not Allowed")
                   : error_answer(404, "NotFoundError", "Not Found");
  }
  (void)co_await responder.respond(std::move(answer));
}

// Probes every instance at each interval; one that still waits for its answer is left alone.
net::Task<void> probe_loop(State state) {
  while (!state->closed) {
    state->instances.expire(state->clock.now());
    for (const auto& instance : state->instances.all())
      if (state->probing.insert(instance.id).second)
        asio::co_spawn(state->executor, probe(state, instance.id), asio::detached);
    state->probe_timer.expires_after(state->options.probe_interval);
    co_await state->probe_timer.async_wait(kAwait);
  }
}

ProxyMetrics::ProxyMetrics(MetricRegistry& with) : registry(with) {
  const auto counter = [&](const char* name, const char* help) { return registry.counter(name, help); };
  in_flight = registry.gauge("baton_proxy_requests_in_flight", "Generations being served");
  handoffs = counter("baton_proxy_handoffs_total", "Requests decoded from handed-over KV");
  colocated =
      counter("baton_proxy_colocated_total", "Requests that a decode engine prefilled for want of a prefill one");
  client_gone = counter("baton_proxy_client_gone_total", "Requests whose client left");
  cut_streams = counter("baton_proxy_cut_streams_total", "Streams that ended with an error event");
  refused = counter("baton_proxy_refused_total", "Requests refused at the limit of requests in flight");
  aborts_sent = counter("baton_proxy_prefill_aborts_total", "Times a prefill engine was told to drop a request's KV");
  prompt_tokens = counter("baton_proxy_prompt_tokens_total", "Prompt tokens, by the engines' usage");
  completion_tokens = counter("baton_proxy_completion_tokens_total", "Generated tokens, by the engines' usage");
  prefill_attempts = counter("baton_proxy_prefill_attempts_total", "Prefill calls");
  decode_attempts = counter("baton_proxy_decode_attempts_total", "Decode calls");
  failovers = counter("baton_proxy_failovers_total", "Calls beyond the first of their stage");
  const std::vector<double> buckets = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
  request_seconds = registry.histogram("baton_proxy_request_seconds", "Whole requests", buckets);
  first_byte_seconds = registry.histogram("baton_proxy_first_byte_seconds", "Until the client's first byte", buckets);
  prefill_seconds = registry.histogram("baton_proxy_prefill_seconds", "Until prefill was answered", buckets);
}

void ProxyMetrics::count_end(const RequestFsm::Summary& summary, TimePoint begin, TimePoint end) {
  registry.counter("baton_proxy_requests_total", "Generations by status", {{"status", std::to_string(summary.status)}})
      .add();
  if (summary.handed_off && summary.status == 200) handoffs.add();
  if (summary.colocated) colocated.add();
  if (summary.status == 499) client_gone.add();
  if (summary.cut_after_first_byte) cut_streams.add();
  prefill_attempts.add(summary.prefill_attempts);
  decode_attempts.add(summary.decode_attempts);
  failovers.add(std::max(0, summary.prefill_attempts - 1) + std::max(0, summary.decode_attempts - 1));
  if (summary.prompt_tokens > 0) prompt_tokens.add(static_cast<double>(summary.prompt_tokens));
  if (summary.completion_tokens > 0) completion_tokens.add(static_cast<double>(summary.completion_tokens));
  request_seconds.observe(seconds_between(begin, end));
  if (summary.first_byte_at) first_byte_seconds.observe(seconds_between(begin, *summary.first_byte_at));
  if (summary.prefilled_at) prefill_seconds.observe(seconds_between(begin, *summary.prefilled_at));
}

void ProxyMetrics::set_instances(const Instances& instances) {
  const auto gauge = [&](const char* name, const char* help, const std::string& role, const std::string& at) {
    return registry.gauge(name, help, {{"role", role}, {"instance", at}});
  };
  std::set<std::string> now_shown;
  for (const auto& each : instances.all()) {
    const std::string role = role_name(each.role), at = name_of(each);
    gauge("baton_proxy_instance_up", "1: chosen, 0: not", role, at)
        .set(each.health != Health::kDown && !each.draining && !each.join_by);
    gauge("baton_proxy_instance_in_flight", "Requests at the instance", role, at).set(each.in_flight);
    gauge("baton_proxy_instance_active_tokens", "Load score", role, at).set(each.active_tokens);
    now_shown.insert(role + " " + at);
  }
  for (const auto& key : shown_instances) {
    if (now_shown.contains(key)) continue;
    const auto space = key.find(' ');
    gauge("baton_proxy_instance_up", "1: chosen, 0: not", key.substr(0, space), key.substr(space + 1)).set(0);
  }
  shown_instances.insert(now_shown.begin(), now_shown.end());
}

}  // namespace baton::proxy
