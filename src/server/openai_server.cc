#include "server/openai_server.h"

#include <openssl/crypto.h>

#include <array>
#include <string_view>

#include "base/hash.h"
#include "server/handlers.h"
#include "server/json_text.h"

namespace baton::server {
namespace {

using Quick = net::HttpResponse (*)(ServerContext&, const net::HttpRequest&);
using Generating = net::Task<void> (*)(ServerContext&, net::HttpRequest&, net::HttpResponder&);

template <net::HttpResponse (*handler)(ServerContext&)>
net::HttpResponse ignoring_request(ServerContext& context, const net::HttpRequest&) {
  return handler(context);
}

struct Route {
  std::string_view method;
  std::string_view path;
  Quick quick = nullptr;
  Generating generating = nullptr;
};

constexpr std::array kRoutes{
    Route{"POST", "/v1/completions", nullptr, handle_completions},
    Route{"POST", "/v1/chat/completions", nullptr, handle_chat_completions},
    Route{"GET", "/v1/models", ignoring_request<handle_models>},
    Route{"POST", "/tokenize", handle_tokenize},
    Route{"POST", "/detokenize", handle_detokenize},
    Route{"GET", "/health", ignoring_request<handle_health>},
    Route{"GET", "/ping", ignoring_request<handle_health>},
    Route{"POST", "/ping", ignoring_request<handle_health>},
    Route{"GET", "/version", ignoring_request<handle_version>},
    Route{"GET", "/load", ignoring_request<handle_load>},
    Route{"GET", "/metrics", ignoring_request<handle_metrics>},
    Route{"POST", "/reset_prefix_cache", ignoring_request<handle_reset_prefix_cache>},
    Route{"POST", "/abort_requests", handle_abort_requests},
};

// The paths that --api-key guards; the rest (health, metrics) stays open, as with vLLM.
bool is_guarded(std::string_view path) {
  return path.starts_with("/v1") || path.starts_with("/v2") || path.starts_with("/inference") ||
         path == "/abort_requests" || path == "/reset_prefix_cache";
}

// Compares hashes in constant time, so that nothing leaks of how much of a key was right.
bool is_authorised(const ServerContext& context, const net::HttpRequest& request) {
  if (context.options.api_keys.empty() || !is_guarded(request.path)) return true;
  const auto header = request.headers.get("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (!header || !header->starts_with(kBearer)) return false;
  const auto given = sha256(std::as_bytes(std::span(header->substr(kBearer.size()))));
  bool found = false;
  for (const auto& key : context.options.api_keys) {
    const auto expected = sha256(std::as_bytes(std::span(key)));
    found |= CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0;
  }
  return found;
}

net::HttpResponse unauthorised(ServerContext& context) {
  constexpr int kStatus = 401;
  context.metrics.count_refusal(kStatus);
  return json_response({{"error", "Unauthorized"}}, kStatus);
}

net::HttpResponse cors_preflight() {
  net::HttpResponse response{.status = 200};
  response.headers.set("Access-Control-Allow-Origin", "*");
  response.headers.set("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  response.headers.set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
  return response;
}

// Chosen route, or the answer that says why there is none.
struct Choice {
  const Route* route = nullptr;
  std::optional<net::HttpResponse> refusal;
};

Choice choose(ServerContext& context, const net::HttpRequest& request) {
  if (request.method == "OPTIONS" && context.options.allow_cors) return {nullptr, cors_preflight()};
  if (!is_authorised(context, request)) {
    return {nullptr, unauthorised(context)};
  }
  bool path_known = false;
  std::string allowed;
  for (const auto& route : kRoutes) {
    if (route.path != request.path) continue;
    path_known = true;
    if (route.method == request.method) return {&route, std::nullopt};
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (!path_known) return {nullptr, error_response({404, "NotFoundError", "Not Found", std::nullopt})};
  auto refusal = error_response({405, "MethodNotAllowedError", "Method Not Allowed: use " + allowed, std::nullopt});
  refusal.headers.set("Allow", allowed);
  return {nullptr, std::move(refusal)};
}

bool has_json_body(const net::HttpRequest& request) {
  const auto type = request.headers.get("Content-Type");
  return !type || type->find("json") != std::string_view::npos;
}

// Answers, and says which route it was for the metrics.
net::Task<std::string_view> serve(ServerContext& context, net::HttpRequest& request, net::HttpResponder& responder) {
  auto [route, refusal] = choose(context, request);
  if (route == nullptr) {
    co_await responder.respond(std::move(*refusal));
  } else if (route->quick != nullptr) {
    co_await responder.respond(route->quick(context, request));
  } else if (!has_json_body(request)) {
    co_await responder.respond(error_response(
        {415, "UnsupportedMediaType", "Unsupported Media Type: Only 'application/json' is allowed", std::nullopt}));
  } else {
    context.requests_in_flight.fetch_add(1);
    struct Leave {
      std::atomic<int64_t>& count;
      ~Leave() { count.fetch_sub(1); }
    } leave{context.requests_in_flight};
    const SteadyClock clock;
    const TimePoint begin = clock.now();
    co_await route->generating(context, request, responder);
    if (responder.status() == 200) context.pace.observe(seconds_between(begin, clock.now()));
  }
  co_return route == nullptr ? std::string_view("none") : route->path;
}

}  // namespace

Result<std::unique_ptr<OpenAiServer>> OpenAiServer::start(net::asio::any_io_executor executor, Parts parts,
                                                          ServerOptions options) {
  if (options.served_model_names.empty()) return fail(Code::kInvalidArgument, "a served model name is needed");
  auto server = std::make_unique<OpenAiServer>();
  auto http_options = options.http;
  server->context_.reset(new ServerContext{.engine = parts.engine,
                                           .tokenizer = parts.tokenizer,
                                           .chat_format = parts.chat_format,
                                           .metrics_registry = parts.metrics,
                                           .options = std::move(options),
                                           .metrics = ServerMetrics(parts.metrics)});
  for (const bool calls : {false, true}) {
    server->context_->marker_tokens[calls] =
        marker_tokens_of(server->context_->options.output_format, calls, parts.tokenizer);
  }
  for (TokenId id = 0; id < parts.tokenizer.vocab_size(); ++id) {
    const int bytes = static_cast<int>(parts.tokenizer.token_bytes(id).size());
    server->context_->longest_token_bytes = std::max(server->context_->longest_token_bytes, bytes);
  }
  auto handler = [shared = server->context_](net::HttpRequest& request,
                                             net::HttpResponder& responder) -> net::Task<void> {
    // A handler may outlive the server by the moment its io_context needs to end.
    const std::shared_ptr<ServerContext> context = shared;
    const SteadyClock clock;
    const TimePoint begin = clock.now();
    const std::string_view route = co_await serve(*context, request, responder);
    constexpr int kClientClosed = 499;
    context->metrics.count_request(route == "none" ? "any" : request.method,
                                   responder.answered() ? responder.status() : kClientClosed, std::string(route),
                                   seconds_between(begin, clock.now()));
  };
  BATON_TRY_ASSIGN(server->http_, net::serve_http(executor, std::move(http_options), std::move(handler)));
  return server;
}

}  // namespace baton::server
