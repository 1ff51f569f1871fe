#include "proxy/proxy_server.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/hash.h"
#include "base/log.h"
#include "net/client_name.h"
#include "proxy/proxy_state.h"

namespace baton::proxy {
namespace {

namespace asio = net::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// What an operator or a client may change or read needs the key; health and metrics stay open, as with the engines.
bool is_guarded(std::string_view path) {
  // What engines call has a key of its own in each URL.
  if (path == "/v1/metaserver") return false;
  return path.starts_with("/v1/") || path.starts_with("/instances/") || path == "/reset_prefix_cache" ||
         path == "/tokenize" || path == "/detokenize";
}

// Compares hashes in constant time, so that nothing leaks of how much of a key was right.
bool is_authorised(const ProxyOptions& options, const net::HttpRequest& request) {
  if (options.api_keys.empty() || !is_guarded(request.path)) return true;
  constexpr std::string_view kBearer = "Bearer ";
  const auto header = request.headers.get("Authorization");
  if (!header || !header->starts_with(kBearer)) return false;
  const auto given = sha256(std::as_bytes(std::span(header->substr(kBearer.size()))));
  bool found = false;
  for (const auto& key : options.api_keys) {
    const auto expected = sha256(std::as_bytes(std::span(key)));
    found |= CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0;
  }
  return found;
}

// Instances are sent clients' prompts and keys, so that without a key only this host may add them.
bool may_change_instances(const ProxyOptions& options, const net::HttpRequest& request) {
  if (!options.api_keys.empty()) return true;
  const auto from = net::client_address(request, options.forwarders);
  return from.starts_with("127.") || from == "::1";
}

bool is_generation(const net::HttpRequest& request) {
  return request.method == "POST" && (request.path == "/v1/completions" || request.path == "/v1/chat/completions");
}

bool has_json_body(const net::HttpRequest& request) {
  const auto type = request.headers.get("Content-Type");
  return !type || type->find("json") != std::string_view::npos;
}

// Refuses what the engines refuse, as they do.
net::Task<void> handle(State state, net::HttpRequest& request, net::HttpResponder& responder) {
  if (request.method == "OPTIONS" && state->options.allow_cors) {
    (void)co_await responder.respond(cors_preflight());
  } else if (!is_authorised(state->options, request)) {
    (void)co_await responder.respond(json_response(401, R"({"error":"Unauthorized"})"));
  } else if (request.path.starts_with("/instances/") && !may_change_instances(state->options, request)) {
    (void)co_await responder.respond(error_answer(
        403, "PermissionDeniedError", "Without --api-key instances are added and removed from this host alone"));
  } else if (is_generation(request) && !has_json_body(request)) {
    (void)co_await responder.respond(
        error_answer(415, "UnsupportedMediaType", "Unsupported Media Type: Only 'application/json' is allowed"));
  } else if (is_generation(request)) {
    co_await handle_generation(state, request, responder);
  } else {
    co_await handle_service(state, request, responder);
  }
}

// Stop: no new connections, running requests end or run out of time, then everything closes.
net::Task<void> wind_down(State state, asio::io_context& context) {
  log_info("event=proxy_stopping in_flight={}", state->door.in_flight());
  state->server->stop_accepting();
  const TimePoint deadline = net::deadline_after(state->options.drain_timeout);
  while (state->door.in_flight() > 0 && state->clock.now() < deadline) {
    asio::steady_timer pause(state->executor, std::chrono::milliseconds(20));
    co_await pause.async_wait(kAwait);
  }
  state->closed = true;
  state->probe_timer.cancel();
  state->server->close();
  // A moment for the handlers to see it.
  asio::steady_timer pause(state->executor, std::chrono::milliseconds(100));
  co_await pause.async_wait(kAwait);
  context.stop();
}

// Decode engines are given this address, whatever host they are on.
Result<void> check_reachable(const std::string& host) {
  boost::system::error_code not_an_address;
  const auto address = asio::ip::make_address(host, not_an_address);
  if (host.empty() || host == "*" || (!not_an_address && address.is_unspecified())) {
    return fail(Code::kInvalidArgument,
                "--host '{}': in layerwise mode decode engines call this proxy back at its --host, so it must be an "
                "address or a name that they reach, not a wildcard",
                host);
  }
  return {};
}

}  // namespace

ProxyState::ProxyState(asio::any_io_executor on, ProxyOptions with)
    : executor(on),
      options(std::move(with)),
      instances(options.health),
      client(net::make_http_client(on, {.tls = options.engine_tls, .use_tls = options.engines_over_tls})),
      probe_timer(on) {}

std::optional<net::HttpClientRequest> ProxyState::request_to(InstanceId id, std::string method,
                                                             std::string target) const {
  const Instance* instance = instances.find(id);
  if (!instance) return std::nullopt;
  net::HttpClientRequest request;
  request.host = instance->host;
  request.port = instance->port;
  request.method = std::move(method);
  request.target = std::move(target);
  request.connect_timeout = options.connect_timeout;
  return request;
}

Result<std::unique_ptr<ProxyServer>> ProxyServer::start(asio::any_io_executor executor, ProxyOptions options) {
  if (options.decode.empty())
    return fail(Code::kInvalidArgument, "the proxy needs at least one decode instance (--decoder-hosts)");
  if (options.engines_over_tls) BATON_TRY(net::check_client_tls(options.engine_tls));
  if (options.decode_first) BATON_TRY(check_reachable(options.http.listen.host));
  auto state = std::make_shared<ProxyState>(executor, std::move(options));
  for (const auto& each : state->options.prefill) BATON_TRY(state->instances.add(Role::kPrefill, each.host, each.port));
  for (const auto& each : state->options.decode) BATON_TRY(state->instances.add(Role::kDecode, each.host, each.port));
  state->options.http.one_thread = true;
  // The handler lives in the server, which lives in the state: a strong reference would be a cycle.
  auto handler = [weak = std::weak_ptr(state)](net::HttpRequest& request,
                                               net::HttpResponder& responder) -> net::Task<void> {
    if (auto strong = weak.lock()) co_await handle(std::move(strong), request, responder);
  };
  BATON_TRY_ASSIGN(state->server, net::serve_http(executor, state->options.http, std::move(handler)));
  if (state->options.decode_first) {
    const auto& http = state->options.http;
    state->metaserver = fmt::format("{}://{}/v1/metaserver", http.tls.cert_file.empty() ? "http" : "https",
                                    net::format_host_port(http.listen.host, state->server->port()));
  }
  asio::co_spawn(executor, probe_loop(state), asio::detached);
  return std::unique_ptr<ProxyServer>(new ProxyServer(std::move(state)));
}

ProxyServer::ProxyServer(std::shared_ptr<ProxyState> state) : state_(std::move(state)) {}
ProxyServer::~ProxyServer() { close(); }
int ProxyServer::port() const { return state_->server->port(); }
int ProxyServer::requests_in_flight() const { return state_->door.in_flight(); }
void ProxyServer::stop_accepting() { state_->server->stop_accepting(); }
void ProxyServer::close() {
  state_->server->close();
  asio::post(state_->executor, [state = state_] {
    state->closed = true;
    state->probe_timer.cancel();
  });
}

Result<int> run_proxy(const ProxyOptions& options, std::stop_token stop) {
  asio::io_context context(1);
  auto state = std::shared_ptr<ProxyState>();
  BATON_TRY_ASSIGN(auto server, ProxyServer::start(context.get_executor(), options));
  state = server->state_;
  log_info("event=proxy_ready listen={} prefill={} decode={}{}{}",
           net::format_host_port(options.http.listen.host, server->port()), options.prefill.size(),
           options.decode.size(), options.decode_first ? " metaserver=" : "", state->metaserver);
  std::stop_callback on_stop(
      stop, [&] { asio::post(context, [&] { asio::co_spawn(context, wind_down(state, context), asio::detached); }); });
  context.run();
  return 0;
}

}  // namespace baton::proxy
