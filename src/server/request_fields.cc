#include "server/request_fields.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "wire/ordered_json.h"

namespace baton::server {
namespace {

std::unexpected<ApiError> wrong_type(const char* name, const char* wanted) {
  return std::unexpected(bad_request(fmt::format("'{}' must be {}", name, wanted), name));
}

const Json* member(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string sanitised(std::string text) {
  return Json(std::move(text)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

Parsed<std::vector<std::pair<TokenId, float>>> parse_logit_bias(const Json& body, int vocab_size) {
  std::vector<std::pair<TokenId, float>> biases;
  const Json* value = member(body, "logit_bias");
  if (value == nullptr) return biases;
  if (!value->is_object()) return wrong_type("logit_bias", "an object from token ids to numbers");
  for (const auto& [key, bias] : value->items()) {
    int64_t id = -1;
    try {
      size_t used = 0;
      id = std::stoll(key, &used);
      if (used != key.size()) id = -1;
    } catch (const std::exception&) {
      id = -1;
    }
    if (id < 0 || id >= vocab_size) {
      return std::unexpected(
          bad_request(fmt::format("'logit_bias' has the key {}: token ids are 0 to {}", sanitised(key), vocab_size - 1),
                      "logit_bias"));
    }
    if (!bias.is_number()) return wrong_type("logit_bias", "an object from token ids to numbers");
    biases.emplace_back(static_cast<TokenId>(id), std::clamp(bias.get<float>(), -100.0f, 100.0f));
  }
  return biases;
}

// Each word as the token sequences that spell it, with and without a space before it.
std::vector<std::vector<TokenId>> bad_word_ids(const std::vector<std::string>& words,
                                               const text::Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> sequences;
  for (const auto& word : words) {
    std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    for (const std::string& spelling : {bare, " " + bare}) {
      auto ids = tokenizer.encode(spelling, {.add_special_tokens = false, .parse_special_tokens = false});
      if (!ids.empty() && std::find(sequences.begin(), sequences.end(), ids) == sequences.end()) {
        sequences.push_back(std::move(ids));
      }
    }
  }
  return sequences;
}

Parsed<void> parse_stream_options(const Json& body, CommonFields& fields) {
  const Json* options = member(body, "stream_options");
  if (options == nullptr) return {};
  if (!options->is_object())
    return std::unexpected(bad_request("'stream_options' must be an object", "stream_options"));
  if (!fields.stream) {
    return std::unexpected(bad_request("Stream options can only be defined when `stream=True`.", "stream_options"));
  }
  BATON_PARSE(const auto include, get_bool(*options, "include_usage"));
  BATON_PARSE(const auto continuous, get_bool(*options, "continuous_usage_stats"));
  fields.include_usage = include.value_or(false);
  fields.continuous_usage = fields.include_usage && continuous.value_or(false);
  return {};
}

Parsed<void> refuse_unsupported(const Json& body) {
  BATON_PARSE(const auto beam, get_bool(body, "use_beam_search"));
  if (beam.value_or(false)) {
    return std::unexpected(
        ApiError{501, "NotImplementedError", "beam search is not in this version of Baton", "use_beam_search"});
  }
  for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"}) {
    if (member(body, name) != nullptr) {
      return std::unexpected(
          ApiError{501, "NotImplementedError", "structured outputs are not in this version of Baton", name});
    }
  }
  if (const Json* format = member(body, "response_format")) {
    const auto type = format->is_object() ? format->value("type", Json()) : Json();
    if (!type.is_string()) return std::unexpected(bad_request("'response_format' needs a 'type'", "response_format"));
    if (type != "text") {
      return std::unexpected(ApiError{501, "NotImplementedError",
                                      "response_format other than text is not in this version of Baton",
                                      "response_format"});
    }
  }
  return {};
}

Parsed<std::string> parse_cache_salt(const Json& body) {
  BATON_PARSE(auto salt, get_string(body, "cache_salt"));
  if (!salt) return std::string();
  if (salt->empty() || salt->size() > 128 || salt->find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos) {
    return std::unexpected(
        bad_request("'cache_salt' must be a non-empty string of at most 128 characters without '@', '/', '\\' or NUL",
                    "cache_salt"));
  }
  return std::move(*salt);
}

constexpr double kHuge = std::numeric_limits<float>::max();

Parsed<void> parse_sampling(const Json& body, const SamplingDefaults& defaults, const RequestLimits& limits,
                            const text::Tokenizer& tokenizer, engine::SamplingParams& sampling) {
  BATON_PARSE(const auto temperature, get_number(body, "temperature", 0, kHuge));
  BATON_PARSE(const auto top_p, get_number(body, "top_p", 0, 1));
  BATON_PARSE(const auto top_k, get_int(body, "top_k", -1, std::numeric_limits<int32_t>::max()));
  BATON_PARSE(const auto min_p, get_number(body, "min_p", 0, 1));
  BATON_PARSE(const auto presence, get_number(body, "presence_penalty", -2, 2));
  BATON_PARSE(const auto frequency, get_number(body, "frequency_penalty", -2, 2));
  BATON_PARSE(const auto repetition, get_number(body, "repetition_penalty", 0, kHuge));
  BATON_PARSE(const auto seed,
              get_int(body, "seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  BATON_PARSE(const auto min_tokens, get_int(body, "min_tokens", 0, std::numeric_limits<int32_t>::max()));
  BATON_PARSE(const auto ignore_eos, get_bool(body, "ignore_eos"));
  BATON_PARSE(const auto bad_words, get_string_or_list(body, "bad_words", 1024));

  sampling.temperature = static_cast<float>(temperature ? *temperature : defaults.temperature.value_or(1));
  // vLLM's floor: smaller temperatures than this only lose precision.
  if (sampling.temperature > 0 && sampling.temperature < 0.01f) sampling.temperature = 0.01f;
  sampling.top_p = static_cast<float>(top_p ? *top_p : defaults.top_p.value_or(1));
  if (sampling.top_p <= 0) return std::unexpected(bad_request("'top_p' must be in (0, 1], got 0", "top_p"));
  sampling.top_k = static_cast<int>(top_k ? *top_k : defaults.top_k.value_or(0));
  sampling.min_p = static_cast<float>(min_p ? *min_p : defaults.min_p.value_or(0));
  sampling.presence_penalty = static_cast<float>(presence.value_or(0));
  sampling.frequency_penalty = static_cast<float>(frequency.value_or(0));
  sampling.repetition_penalty = static_cast<float>(repetition ? *repetition : defaults.repetition_penalty.value_or(1));
  if (sampling.repetition_penalty <= 0) {
    return std::unexpected(bad_request("'repetition_penalty' must be greater than 0", "repetition_penalty"));
  }
  if (seed) sampling.seed = static_cast<uint64_t>(*seed);
  sampling.min_tokens = static_cast<int>(min_tokens.value_or(0));
  sampling.ignore_eos = ignore_eos.value_or(false);
  sampling.bad_words = bad_word_ids(bad_words, tokenizer);
  BATON_PARSE(sampling.logit_bias, parse_logit_bias(body, limits.vocab_size));
  BATON_PARSE(sampling.allowed_token_ids, get_token_ids(body, "allowed_token_ids", limits.vocab_size));
  if (member(body, "allowed_token_ids") != nullptr && sampling.allowed_token_ids.empty()) {
    return std::unexpected(bad_request("'allowed_token_ids' must not be empty", "allowed_token_ids"));
  }
  BATON_PARSE(sampling.stop_token_ids, get_token_ids(body, "stop_token_ids", std::numeric_limits<int32_t>::max()));
  return {};
}

}  // namespace

ApiError bad_request(std::string message, std::optional<std::string> param) {
  return {400, "BadRequestError", std::move(message), std::move(param)};
}

Parsed<Json> parse_body(std::string_view body) {
  auto parsed = wire::parse_ordered_json(body, kMaxJsonDepth);
  if (!parsed) return std::unexpected(bad_request("the body " + parsed.error().message()));
  if (!parsed->is_object()) return std::unexpected(bad_request("the body must be a JSON object"));
  return std::move(*parsed);
}

Parsed<std::optional<bool>> get_bool(const Json& object, const char* name) {
  const Json* value = member(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return wrong_type(name, "a boolean");
  return value->get<bool>();
}

Parsed<std::optional<int64_t>> get_int(const Json& object, const char* name, int64_t lowest, int64_t highest) {
  const Json* value = member(object, name);
  if (value == nullptr) return std::nullopt;
  const bool whole_float = value->is_number_float() && std::floor(value->get<double>()) == value->get<double>() &&
                           std::fabs(value->get<double>()) < 0x1p53;
  if (!value->is_number_integer() && !whole_float) return wrong_type(name, "an integer");
  const bool above = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t number = above ? INT64_MAX : value->get<int64_t>();
  if (above || number < lowest || number > highest) {
    return std::unexpected(
        bad_request(fmt::format("'{}' must be from {} to {}, got {}", name, lowest, highest, value->dump()), name));
  }
  return number;
}

Parsed<std::optional<double>> get_number(const Json& object, const char* name, double lowest, double highest) {
  const Json* value = member(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong_type(name, "a number");
  const double number = value->get<double>();
  if (!(number >= lowest && number <= highest)) {
    return std::unexpected(bad_request(
        highest == kHuge ? fmt::format("'{}' must be at least {}, got {}", name, lowest, value->dump())
                         : fmt::format("'{}' must be from {} to {}, got {}", name, lowest, highest, value->dump()),
        name));
  }
  return number;
}

Parsed<std::optional<std::string>> get_string(const Json& object, const char* name) {
  const Json* value = member(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong_type(name, "a string");
  return value->get<std::string>();
}

Parsed<std::vector<std::string>> get_string_or_list(const Json& object, const char* name, size_t most) {
  const Json* value = member(object, name);
  if (value == nullptr) return std::vector<std::string>{};
  if (value->is_string()) return std::vector<std::string>{value->get<std::string>()};
  if (!value->is_array()) return wrong_type(name, "a string or a list of strings");
  if (value->size() > most) {
    return std::unexpected(
        bad_request(fmt::format("'{}' has {} entries; at most {}", name, value->size(), most), name));
  }
  std::vector<std::string> strings;
  for (const auto& entry : *value) {
    if (!entry.is_string()) return wrong_type(name, "a string or a list of strings");
    strings.push_back(entry.get<std::string>());
  }
  return strings;
}

Parsed<std::vector<TokenId>> get_token_ids(const Json& object, const char* name, int vocab_size) {
  const Json* value = member(object, name);
  std::vector<TokenId> ids;
  if (value == nullptr) return ids;
  if (!value->is_array()) return wrong_type(name, "a list of token ids");
  ids.reserve(value->size());
  for (const auto& entry : *value) {
    if (!entry.is_number_integer()) return wrong_type(name, "a list of token ids");
    const int64_t id =
        entry.is_number_unsigned() && entry.get<uint64_t>() > INT32_MAX ? INT64_MAX : entry.get<int64_t>();
    if (id < 0 || id >= vocab_size) {
      return std::unexpected(
          bad_request(fmt::format("'{}' holds {}: token ids are 0 to {}", name, entry.dump(), vocab_size - 1), name));
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

Result<SamplingDefaults> SamplingDefaults::from_generation_config(const nlohmann::json& config) {
  SamplingDefaults defaults;
  Result<void> sound;
  const auto find = [&](const char* name) -> const nlohmann::json* {
    const auto it = config.find(name);
    return it == config.end() || it->is_null() ? nullptr : &*it;
  };
  const auto refuse = [&](const char* name, std::string_view wanted, const nlohmann::json& value) {
    sound = fail(Code::kInvalidArgument, "{} must be {}, not {}", name, wanted,
                 value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 80));
  };
  const auto number = [&](const char* name, std::string_view wanted, std::optional<double>& into, auto&& allowed) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_number() || !allowed(value->get<double>())) return refuse(name, wanted, *value);
    into = value->get<double>();
  };
  const auto integer = [&](const char* name, int64_t least, std::optional<int64_t>& into) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return;
    const bool fits = value->is_number_integer() && *value >= least && *value <= INT32_MAX;
    if (!fits) return refuse(name, fmt::format("an integer from {} to {}", least, INT32_MAX), *value);
    into = value->get<int64_t>();
  };
  if (!config.is_object()) return fail(Code::kInvalidArgument, "must be a JSON object, not {}", config.type_name());
  number("temperature", "a number from 0", defaults.temperature, [](double x) { return x >= 0 && x <= FLT_MAX; });
  number("top_p", "a number above 0, at most 1", defaults.top_p, [](double x) { return x > 0 && x <= 1; });
  number("min_p", "a number from 0 to 1", defaults.min_p, [](double x) { return x >= 0 && x <= 1; });
  number("repetition_penalty", "a number above 0", defaults.repetition_penalty,
         [](double x) { return x >= FLT_MIN && x <= FLT_MAX; });
  integer("top_k", -1, defaults.top_k);
  integer("max_new_tokens", 1, defaults.max_new_tokens);
  BATON_TRY(sound);
  return defaults;
}

Parsed<CommonFields> parse_common(const Json& body, const SamplingDefaults& defaults, const RequestLimits& limits,
                                  const text::Tokenizer& tokenizer) {
  CommonFields fields;
  BATON_PARSE(const auto model, get_string(body, "model"));
  fields.model = model.value_or("");
  BATON_PARSE(const auto stream, get_bool(body, "stream"));
  fields.stream = stream.value_or(false);
  if (auto parsed = parse_stream_options(body, fields); !parsed) return std::unexpected(parsed.error());
  if (auto refused = refuse_unsupported(body); !refused) return std::unexpected(refused.error());
  BATON_PARSE(const auto n, get_int(body, "n", 1, limits.max_n));
  fields.n = static_cast<int>(n.value_or(1));
  BATON_PARSE(fields.stop, get_string_or_list(body, "stop", limits.max_stop_strings));
  if (std::any_of(fields.stop.begin(), fields.stop.end(), [](const auto& s) { return s.empty(); })) {
    return std::unexpected(bad_request("'stop' cannot contain an empty string", "stop"));
  }
  BATON_PARSE(const auto include_stop, get_bool(body, "include_stop_str_in_output"));
  fields.include_stop_str_in_output = include_stop.value_or(false);
  BATON_PARSE(const auto skip_special, get_bool(body, "skip_special_tokens"));
  fields.skip_special_tokens = skip_special.value_or(true);
  BATON_PARSE(const auto return_ids, get_bool(body, "return_token_ids"));
  fields.return_token_ids = return_ids.value_or(false);
  BATON_PARSE(const auto as_ids, get_bool(body, "return_tokens_as_token_ids"));
  fields.return_tokens_as_token_ids = as_ids.value_or(false);
  BATON_PARSE(fields.truncate_prompt_tokens, get_int(body, "truncate_prompt_tokens", -1, INT32_MAX));
  BATON_PARSE(fields.add_special_tokens, get_bool(body, "add_special_tokens"));
  BATON_PARSE(fields.request_id, get_string(body, "request_id"));
  BATON_PARSE(const auto priority, get_int(body, "priority", INT32_MIN, INT32_MAX));
  fields.priority = static_cast<int>(priority.value_or(0));
  BATON_PARSE(fields.cache_salt, parse_cache_salt(body));
  if (const Json* params = member(body, "kv_transfer_params")) {
    auto parsed = wire::KvTransferParams::from_json(nlohmann::json(*params));
    if (!parsed) return std::unexpected(to_api_error(parsed.error(), "kv_transfer_params"));
    fields.kv_transfer = std::move(*parsed);
  }
  if (auto parsed = parse_sampling(body, defaults, limits, tokenizer, fields.sampling); !parsed) {
    return std::unexpected(parsed.error());
  }
  return fields;
}

}  // namespace baton::server
