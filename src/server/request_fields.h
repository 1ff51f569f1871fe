// Reading request bodies: typed members with errors that name the field, and the sampling fields that both completion
// routes share. Pure: JSON in, values or an ApiError out.
#pragma once

#include <cstdint>
#include <expected>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "server/errors.h"
#include "text/tokenizer.h"

namespace baton::server {

using Json = nlohmann::ordered_json;
template <typename T>
using Parsed = std::expected<T, ApiError>;

ApiError bad_request(std::string message, std::optional<std::string> param = std::nullopt);

// Parses a body: a JSON object of at most `kMaxJsonDepth` levels.
inline constexpr int kMaxJsonDepth = 64;
Parsed<Json> parse_body(std::string_view body);

// A member of `object`, or nothing when it is missing or null. The wrong type is an error.
Parsed<std::optional<bool>> get_bool(const Json& object, const char* name);
Parsed<std::optional<int64_t>> get_int(const Json& object, const char* name, int64_t lowest, int64_t highest);
Parsed<std::optional<double>> get_number(const Json& object, const char* name, double lowest, double highest);
Parsed<std::optional<std::string>> get_string(const Json& object, const char* name);
Parsed<std::vector<std::string>> get_string_or_list(const Json& object, const char* name, size_t most);
Parsed<std::vector<TokenId>> get_token_ids(const Json& object, const char* name, int vocab_size);

// What a checkpoint's generation_config.json and the command line set where the request is silent.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_new_tokens;
  // A value that no request could ask for is an error that names its key.
  static Result<SamplingDefaults> from_generation_config(const nlohmann::json& config);
};

struct RequestLimits {
  int max_logprobs = 20;  // -1: no bound
  int max_n = 16384;
  size_t max_stop_strings = 16;
  size_t max_prompts = 16384;
  int vocab_size = 0;
};

// The fields both routes share.
struct CommonFields {
  std::string model;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  int n = 1;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  std::optional<int64_t> truncate_prompt_tokens;
  std::optional<bool> add_special_tokens;
  std::optional<std::string> request_id;
  int priority = 0;
  std::string cache_salt;
  std::optional<wire::KvTransferParams> kv_transfer;
  engine::SamplingParams sampling;  // max_tokens, logprobs and prompt_logprobs are set by the route
};
Parsed<CommonFields> parse_common(const Json& body, const SamplingDefaults& defaults, const RequestLimits& limits,
                                  const text::Tokenizer& tokenizer);

}  // namespace baton::server

// Inside a function that returns Parsed<...>.
#define BATON_PARSE(lhs, expr) BATON_PARSE_INNER(lhs, expr, BATON_CONCAT(baton_parsed_, __LINE__))
#define BATON_PARSE_INNER(lhs, expr, name)                                \
  auto name = (expr);                                                     \
  if (!name.has_value()) return std::unexpected(std::move(name).error()); \
  lhs = std::move(name).value()
