#include "server/server_context.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace baton::server {

ServerMetrics::ServerMetrics(MetricRegistry& registry)
    : request_params_n(
          registry.histogram("vllm:request_params_n", "Histogram of the n request parameter.", {1, 2, 5, 10, 20})),
      request_seconds(registry.histogram("http_request_duration_highr_seconds", "Latency of all HTTP requests.",
                                         {.01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 10, 30, 60})),
      registry_(registry) {
  const auto refused = [&](const char* reason) {
    return registry.counter("baton_server_refused_requests_total", "Requests that were not served, by reason.",
                            {{"reason", reason}});
  };
  unauthorized_ = refused("unauthorized");
  queue_full_ = refused("queue_full");
  unavailable_ = refused("unavailable");
}

void ServerMetrics::count_refusal(int status) {
  if (status == 401) unauthorized_.add();
  if (status == 429) queue_full_.add();
  if (status == 503) unavailable_.add();
}

void ServerMetrics::count_request(const std::string& method, int status, const std::string& route, double seconds) {
  request_seconds.observe(seconds);
  const std::string status_class = std::to_string(status / 100) + "xx";
  std::lock_guard lock(mutex_);
  auto [it, fresh] = counters_.try_emplace(method + status_class + route);
  if (fresh) {
    it->second = registry_.counter("http_requests_total", "HTTP requests by method, status and handler.",
                                   {{"method", method}, {"status", status_class}, {"handler", route}});
  }
  it->second.add();
}

net::HttpResponse ServerContext::refuse(const ApiError& error) {
  metrics.count_refusal(error.status);
  auto response = error_response(error);
  if (error.status == 429 || error.status == 503) {
    const int seconds = pace.retry_after(engine.stats(), engine.config().max_num_seqs);
    response.headers.set("Retry-After", std::to_string(seconds));
  }
  return response;
}

bool ServerContext::serves(const std::string& name) const {
  const auto& names = options.served_model_names;
  return name.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

std::string ServerContext::request_id(const net::HttpRequest& request, const std::optional<std::string>& in_body) {
  constexpr size_t kLongest = 256;
  if (const auto header = request.headers.get("X-Request-Id"); header && !header->empty()) {
    return std::string(header->substr(0, kLongest));
  }
  if (in_body && !in_body->empty()) return in_body->substr(0, kLongest);
  // 128 bits: unique among processes, too.
  thread_local std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

Parsed<void> check_prompt_size(const ServerContext& context, size_t text_bytes) {
  if (text_bytes <= context.longest_text_bytes()) return {};
  const int64_t at_least = static_cast<int64_t>(text_bytes) / context.longest_token_bytes;
  return std::unexpected(bad_request(
      fmt::format("This model's maximum context length is {} tokens. However, your request has at least {} input "
                  "tokens ({} bytes of text). Please reduce the length of the input messages.",
                  context.engine.config().max_model_len, at_least, text_bytes),
      "input_tokens"));
}

Parsed<std::vector<TokenId>> encode_prompt(const ServerContext& context, std::string_view text,
                                           bool add_special_tokens) {
  if (auto fits = check_prompt_size(context, text.size()); !fits) return std::unexpected(fits.error());
  return context.tokenizer.encode(text, {.add_special_tokens = add_special_tokens});
}

ApiError model_not_found(const std::string& name) {
  return {404, "NotFoundError", fmt::format("The model `{}` does not exist.", name), "model"};
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace baton::server
