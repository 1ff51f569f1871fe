// Every route of the proxy that generates nothing, the headers that travel on, and the probes.
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
constexpr std::string_view kMetaserverPath = "/v1/metaserver";  // D first only

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

// The first engine that answers below 500, or says that it does not do such a thing, answers for all.
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
    if (answer && (answer->status < 500 || answer->status == 501)) {
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
      failed.push_back(fmt::format("{}://{}{}", state->options.engines_over_tls ? "https" : "http", name_of(instance),
                                   request.path));
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
             log_quoted(name));
  }
  if (add) state.probe_timer.cancel();  // probe now
  const Json body = {{"message", fmt::format("{}", fmt::join(said, "; "))},
                     {"current_prefill_instances", state.instances.count(Role::kPrefill)},
                     {"current_decode_instances", state.instances.count(Role::kDecode)}};
  return json_response(200, body.dump());
}

net::HttpResponse healthcheck(const ProxyState& state) {
  Json body = {{"status", "ok"},
               {"prefill_instances", state.instances.count(Role::kPrefill)},
               {"decode_instances", state.instances.count(Role::kDecode)}};
  if (!state.options.decode_first) body["request_num"] = state.door.in_flight();
  return json_response(200, body.dump());
}

net::HttpResponse metrics(ProxyState& state) {
  state.metrics.set_instances(state.instances);
  net::HttpResponse response{.status = 200, .headers = {}, .body = state.registry.text()};
  response.headers.add("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  return response;
}

struct Route {
  std::string_view method, path;
};
// With those of handle_generation, so that a wrong method at their paths is told apart from a wrong path.
constexpr Route kRoutes[] = {
    {"POST", "/v1/completions"}, {"POST", "/v1/chat/completions"},
    {"GET", "/v1/models"},       {"POST", "/tokenize"},
    {"POST", "/detokenize"},     {"POST", "/reset_prefix_cache"},
    {"POST", kMetaserverPath},   {"GET", "/healthcheck"},
    {"GET", "/health"},          {"GET", "/ping"},
    {"POST", "/ping"},           {"GET", "/metrics"},
    {"GET", "/version"},         {"GET", "/load"},
    {"POST", "/instances/add"},  {"POST", "/instances/remove"},
};

// 404 or 405, in the engines' words, when there is no such route.
std::optional<net::HttpResponse> refuse_unknown(const ProxyState& state, const net::HttpRequest& request) {
  std::string allowed;
  for (const auto& route : kRoutes) {
    if (route.path != request.path) continue;
    if (route.path == kMetaserverPath && !state.options.decode_first) continue;
    if (route.method == request.method) return std::nullopt;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (allowed.empty()) return error_answer(404, "NotFoundError", "Not Found");
  auto refusal = error_answer(405, "MethodNotAllowedError", "Method Not Allowed: use " + allowed);
  refusal.headers.set("Allow", allowed);
  return refusal;
}

net::HttpResponse quick_answer(ProxyState& state, const net::HttpRequest& request) {
  const std::string_view path = request.path;
  if (path == "/healthcheck") return healthcheck(state);
  if (path == "/metrics") return metrics(state);
  if (path == "/version") return json_response(200, Json{{"version", state.options.version}}.dump());
  if (path == "/load") return json_response(200, Json{{"server_load", state.door.in_flight()}}.dump());
  if (path == "/instances/add") return change_instances(state, request, true);
  if (path == "/instances/remove") return change_instances(state, request, false);
  net::HttpResponse health;
  health.status = state.instances.any_usable(Role::kDecode, state.clock.now()) ? 200 : 503;
  return health;
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
           answer ? "" : " error=", answer ? "" : log_quoted(answer.error().message()));
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

net::HttpResponse cors_preflight() {
  net::HttpResponse response{.status = 200, .headers = {}, .body = {}};
  response.headers.set("Access-Control-Allow-Origin", "*");
  response.headers.set("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  response.headers.set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
  return response;
}

net::Task<void> handle_service(State state, net::HttpRequest& request, net::HttpResponder& responder) {
  const std::string_view path = request.path;
  if (auto refusal = refuse_unknown(*state, request)) {
    (void)co_await responder.respond(std::move(*refusal));
  } else if (path == kMetaserverPath) {
    co_await handle_metaserver(std::move(state), request, responder);
  } else if (path == "/v1/models") {
    co_await forward_to_any(state, request, responder, kModelsTimeout);
  } else if (path == "/tokenize" || path == "/detokenize") {
    co_await forward_to_any(state, request, responder, kServiceTimeout);
  } else if (path == "/reset_prefix_cache") {
    co_await reset_prefix_cache(state, request, responder);
  } else {
    (void)co_await responder.respond(quick_answer(*state, request));
  }
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

}  // namespace baton::proxy
