// What every handler shares, built by OpenAiServer and passed by reference. Handlers run on the server's executors.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "engine/engine.h"
#include "net/http_server.h"
#include "server/admission.h"
#include "server/live_requests.h"
#include "server/marker_tokens.h"
#include "server/request_fields.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace baton::server {

struct ServerOptions {
  net::HttpServerOptions http;
  std::vector<std::string> served_model_names;  // the first stands in answers; all are accepted
  std::string model_root;                       // path shown as "root" in /v1/models
  std::vector<std::string> api_keys;            // empty: no check
  std::vector<std::string> forwarders;          // see net/client_name.h
  std::string version;
  RequestLimits limits;
  SamplingDefaults sampling_defaults;
  nlohmann::ordered_json chat_template_kwargs = nlohmann::ordered_json::object();
  std::string response_role = "assistant";
  text::OutputFormat output_format;  // how reasoning and tool calls are read; by default not at all
  bool enable_auto_tool_choice = false;
  bool exclude_tools_when_tool_choice_none = false;
  bool enable_prompt_tokens_details = false;
  bool enable_request_id_headers = false;
  bool enable_server_load_tracking = false;
  bool force_include_usage = false;
  bool return_tokens_as_token_ids = false;
  bool trust_request_chat_template = false;
  bool allow_cors = true;
};

struct ServerMetrics {
  explicit ServerMetrics(MetricRegistry& registry);
  Histogram request_params_n;
  Histogram request_seconds;
  // By method, status class and route (a known path, or "none": labels stay few whatever clients send).
  void count_request(const std::string& method, int status, const std::string& route, double seconds);
  // By reason: unauthorized, queue_full (or the client's share of it), unavailable (draining, waited too long, dead).
  void count_refusal(int status);

 private:
  MetricRegistry& registry_;
  std::mutex mutex_;
  std::map<std::string, Counter> counters_;
  Counter unauthorized_, queue_full_, unavailable_;
};

struct ServerContext {
  engine::Engine& engine;
  const text::Tokenizer& tokenizer;
  const text::ChatFormat* chat_format;  // null: the checkpoint has none
  MetricRegistry& metrics_registry;
  ServerOptions options;
  ServerMetrics metrics;
  LiveRequests live;
  Pace pace;
  int longest_token_bytes = 1;
  std::array<MarkerTokens, 2> marker_tokens = {};  // of options.output_format, without and with tool calls
  std::atomic<int64_t> requests_in_flight{0};

  // The answer, and how soon to ask again; counted by reason.
  net::HttpResponse refuse(const ApiError& error);

  // The most bytes of text that can fit the context, whatever tokens it becomes: longer text is refused unread.
  size_t longest_text_bytes() const {
    return static_cast<size_t>(engine.config().max_model_len) * static_cast<size_t>(longest_token_bytes);
  }

  // Whether this server answers under `name` ("" counts as the first name).
  bool serves(const std::string& name) const;
  std::string model_name() const { return options.served_model_names.front(); }
  // A request's id: X-Request-Id, else the body's, else fresh.
  std::string request_id(const net::HttpRequest& request, const std::optional<std::string>& in_body);
};

// Refuses a text that can't fit the context, whatever tokens it becomes.
Parsed<void> check_prompt_size(const ServerContext& context, size_t text_bytes);
// Tokenises for a prompt, unless the text can't fit the context anyway.
Parsed<std::vector<TokenId>> encode_prompt(const ServerContext& context, std::string_view text,
                                           bool add_special_tokens);

ApiError model_not_found(const std::string& name);
int64_t unix_time();

}  // namespace baton::server
