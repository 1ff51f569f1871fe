// The routes around generation: tokenizer, models, health, metrics, administration.
#include "server/chat_request.h"
#include "server/handlers.h"
#include "server/json_text.h"

namespace baton::server {
namespace {

Parsed<Json> tokenize(ServerContext& context, const net::HttpRequest& request) {
  BATON_PARSE(const Json body, parse_body(request.body));
  BATON_PARSE(const auto model, get_string(body, "model"));
  if (!context.serves(model.value_or(""))) return std::unexpected(model_not_found(*model));
  BATON_PARSE(const auto add_special, get_bool(body, "add_special_tokens"));
  BATON_PARSE(const auto with_strings, get_bool(body, "return_token_strs"));

  std::vector<TokenId> ids;
  if (body.contains("messages")) {
    BATON_PARSE(const auto rendered, render_chat(context, body));
    ids = text::encode_segments(context.tokenizer, rendered.segments, add_special.value_or(false));
  } else {
    BATON_PARSE(const auto prompt, get_string(body, "prompt"));
    if (!prompt) return std::unexpected(bad_request("'prompt' or 'messages' is required", "prompt"));
    ids = context.tokenizer.encode(*prompt, {.add_special_tokens = add_special.value_or(true)});
  }
  Json answer;
  answer["count"] = ids.size();
  answer["max_model_len"] = context.engine.config().max_model_len;
  answer["tokens"] = ids;
  answer["token_strs"] = nullptr;
  if (with_strings.value_or(false)) {
    answer["token_strs"] = Json::array();
    for (const TokenId id : ids) answer["token_strs"].push_back(std::string(context.tokenizer.token_spelling(id)));
  }
  return answer;
}

Parsed<Json> detokenize(ServerContext& context, const net::HttpRequest& request) {
  BATON_PARSE(const Json body, parse_body(request.body));
  BATON_PARSE(const auto model, get_string(body, "model"));
  if (!context.serves(model.value_or(""))) return std::unexpected(model_not_found(*model));
  if (!body.contains("tokens")) return std::unexpected(bad_request("'tokens' is required", "tokens"));
  BATON_PARSE(const auto ids, get_token_ids(body, "tokens", context.options.limits.vocab_size));
  return Json{{"prompt", text::decode(context.tokenizer, ids, false)}};
}

net::HttpResponse answer(Parsed<Json> parsed) {
  return parsed ? json_response(*parsed) : error_response(parsed.error());
}

Parsed<Json> abort_requests(ServerContext& context, const net::HttpRequest& request) {
  BATON_PARSE(const Json body, parse_body(request.body.empty() ? std::string_view("{}") : request.body));
  BATON_PARSE(const auto ids, get_string_or_list(body, "request_ids", 1024));
  if (ids.empty()) return Json{{"status", "aborted"}, {"aborted", context.engine.abort_all()}};
  for (const auto& id : ids) {
    for (const auto& engine_id : context.live.find(id)) context.engine.abort(engine_id);
    // Answered already, but its KV may still be held for a decode engine.
    for (const char* prefix : {"", "cmpl-", "chatcmpl-"}) context.engine.abort(fmt::format("{}{}-0", prefix, id));
  }
  return Json{{"status", "aborted"}, {"aborted", ids.size()}};
}

}  // namespace

net::HttpResponse json_response(const Json& body, int status) {
  net::HttpResponse response{.status = status, .body = to_text(body)};
  response.headers.set("Content-Type", "application/json");
  return response;
}

net::HttpResponse handle_tokenize(ServerContext& context, const net::HttpRequest& request) {
  return answer(tokenize(context, request));
}
net::HttpResponse handle_detokenize(ServerContext& context, const net::HttpRequest& request) {
  return answer(detokenize(context, request));
}
net::HttpResponse handle_abort_requests(ServerContext& context, const net::HttpRequest& request) {
  return answer(abort_requests(context, request));
}

net::HttpResponse handle_models(ServerContext& context) {
  Json body{{"object", "list"}, {"data", Json::array()}};
  for (const auto& name : context.options.served_model_names) {
    body["data"].push_back({{"id", name},
                            {"object", "model"},
                            {"created", unix_time()},
                            {"owned_by", "vllm"},
                            {"root", context.options.model_root},
                            {"parent", nullptr},
                            {"max_model_len", context.engine.config().max_model_len},
                            {"permission", Json::array()}});
  }
  return json_response(body);
}

net::HttpResponse handle_health(ServerContext& context) {
  if (context.engine.healthy()) {
    // A proxy counts on what only Baton's engines do.
    net::HttpResponse healthy{.status = 200};
    healthy.headers.set("X-Baton-Engine", "1");
    return healthy;
  }
  net::HttpResponse response{.status = 503, .body = context.engine.health_reason()};
  response.headers.set("Content-Type", "text/plain; charset=utf-8");
  return response;
}

net::HttpResponse handle_version(ServerContext& context) {
  return json_response({{"version", context.options.version}});
}

net::HttpResponse handle_load(ServerContext& context) {
  return json_response({{"server_load", context.requests_in_flight.load()}});
}

net::HttpResponse handle_metrics(ServerContext& context) {
  context.engine.stats();  // refreshes the gauges
  net::HttpResponse response{.status = 200, .body = context.metrics_registry.text()};
  response.headers.set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  return response;
}

net::HttpResponse handle_reset_prefix_cache(ServerContext& context) {
  context.engine.reset_prefix_cache();
  return {.status = 200};
}

}  // namespace baton::server
