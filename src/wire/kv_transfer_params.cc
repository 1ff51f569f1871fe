#include "wire/kv_transfer_params.h"

#include <charconv>
#include <limits>
#include <string_view>

namespace baton::wire {
namespace {

using Json = nlohmann::json;

// The member, or nullptr when it is missing or null.
const Json* find(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::unexpected<Status> wrong_type(const char* name, std::string_view wanted, const Json& got) {
  return fail(Code::kInvalidArgument, "kv_transfer_params.{} must be {}, not {}", name, wanted, got.type_name());
}

Result<void> read(const Json& object, const char* name, bool& into) {
  if (const Json* member = find(object, name)) {
    if (!member->is_boolean()) return wrong_type(name, "a boolean", *member);
    into = member->get<bool>();
  }
  return {};
}

Result<void> read(const Json& object, const char* name, std::string& into) {
  if (const Json* member = find(object, name)) {
    if (!member->is_string()) return wrong_type(name, "a string", *member);
    into = member->get<std::string>();
  }
  return {};
}

Result<int64_t> integer_within(const Json& member, const char* name, int64_t low, int64_t high) {
  if (!member.is_number_integer()) return wrong_type(name, "an integer", member);
  const bool too_big = member.is_number_unsigned() && member.get<uint64_t>() > static_cast<uint64_t>(high);
  if (too_big || member.get<int64_t>() < low || member.get<int64_t>() > high) {
    return fail(Code::kInvalidArgument, "kv_transfer_params.{} must be between {} and {}, not {}", name, low, high,
                member.dump());
  }
  return member.get<int64_t>();
}

template <typename T>
Result<void> read_integer(const Json& object, const char* name, int64_t low, int64_t high, T& into) {
  if (const Json* member = find(object, name)) {
    BATON_TRY_ASSIGN(const int64_t value, integer_within(*member, name, low, high));
    into = static_cast<T>(value);
  }
  return {};
}

// Some launchers write ports as text.
Result<void> read_port(const Json& object, int& into) {
  const Json* member = find(object, "remote_port");
  if (member == nullptr || !member->is_string()) return read_integer(object, "remote_port", 0, 65535, into);
  const auto& text = member->get_ref<const std::string&>();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  if (error != std::errc{} || end != text.data() + text.size() || into < 0 || into > 65535) {
    into = 0;
    return fail(Code::kInvalidArgument, "kv_transfer_params.remote_port must be a port number, not {}", member->dump());
  }
  return {};
}

// 64 bits travel as 16 hexadecimal digits: a proxy whose JSON numbers are doubles would round them.
Result<std::optional<uint64_t>> read_u64(const Json& object, const char* name) {
  const Json* member = find(object, name);
  if (member == nullptr) return std::nullopt;
  if (member->is_number_unsigned()) return member->get<uint64_t>();
  if (!member->is_string()) return wrong_type(name, "16 hexadecimal digits", *member);
  const auto& text = member->get_ref<const std::string&>();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    return fail(Code::kInvalidArgument, "kv_transfer_params.{} must be 16 hexadecimal digits, not {}", name,
                member->dump());
  }
  return value;
}

Result<std::vector<int32_t>> read_ids(const Json& list, const char* name = "remote_block_ids") {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) {
    BATON_TRY_ASSIGN(const int64_t value, integer_within(id, name, 0, std::numeric_limits<int32_t>::max()));
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

// A number, or (layerwise) one per KV group; all have the same here.
Result<void> read_block_size(const Json& object, int& into) {
  const Json* member = find(object, "remote_block_size");
  if (member == nullptr || !member->is_array()) return read_integer(object, "remote_block_size", 0, 1 << 24, into);
  if (member->empty()) return {};
  return read_integer(Json{{"remote_block_size", member->front()}}, "remote_block_size", 0, 1 << 24, into);
}

// One list per KV group; a flat list (older connectors) is one group.
Result<void> read_block_ids(const Json& object, std::vector<std::vector<int32_t>>& into) {
  const Json* member = find(object, "remote_block_ids");
  if (member == nullptr) return {};
  if (!member->is_array()) return wrong_type("remote_block_ids", "a list of lists", *member);
  if (!member->empty() && !member->front().is_array()) {
    BATON_TRY_ASSIGN(auto ids, read_ids(*member));
    into.push_back(std::move(ids));
    return {};
  }
  for (const Json& group : *member) {
    if (!group.is_array()) return wrong_type("remote_block_ids", "a list of lists", group);
    BATON_TRY_ASSIGN(auto ids, read_ids(group));
    into.push_back(std::move(ids));
  }
  return {};
}

// vLLM-Ascend's name for the tokens, and ours for how many of them are outputs.
constexpr const char* kResumeTokens = "_vllm_ascend_recompute_token_ids";
constexpr const char* kResumeOutputs = "baton_resume_output_count";

Result<void> read_resume(const Json& object, KvTransferParams& params) {
  const Json* tokens = find(object, kResumeTokens);
  if (tokens == nullptr) return {};
  if (!tokens->is_array()) return wrong_type(kResumeTokens, "a list of token ids", *tokens);
  BATON_TRY_ASSIGN(params.resume_token_ids, read_ids(*tokens, kResumeTokens));
  if (const Json* count = find(object, kResumeOutputs)) {
    const auto most = static_cast<int64_t>(params.resume_token_ids.size()) - 1;
    BATON_TRY_ASSIGN(params.resume_output_count, integer_within(*count, kResumeOutputs, 0, most));
  }
  return {};
}

constexpr const char* kKnown[] = {
    "do_remote_decode",  "do_remote_prefill", "remote_engine_id", "remote_request_id",
    "remote_host",       "remote_port",       "remote_block_ids", "remote_num_prompt_tokens",
    "remote_block_size", "last_token_id",     "baton_offer_id",   "baton_seed",
    "kv_lease_duration", kResumeTokens,       kResumeOutputs,     "metaserver"};

std::string hex64(uint64_t value) { return fmt::format("{:016x}", value); }

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

Result<KvTransferParams> KvTransferParams::from_json(const Json& object) {
  if (!object.is_object()) {
    return fail(Code::kInvalidArgument, "kv_transfer_params must be an object, not {}", object.type_name());
  }
  KvTransferParams params;
  BATON_TRY(read(object, "do_remote_decode", params.do_remote_decode));
  BATON_TRY(read(object, "do_remote_prefill", params.do_remote_prefill));
  BATON_TRY(read(object, "remote_engine_id", params.remote_engine_id));
  BATON_TRY(read(object, "remote_request_id", params.remote_request_id));
  BATON_TRY(read(object, "remote_host", params.remote_host));
  BATON_TRY(read_port(object, params.remote_port));
  BATON_TRY(read_block_ids(object, params.remote_block_ids));
  BATON_TRY(read_integer(object, "remote_num_prompt_tokens", 0, int64_t{1} << 40, params.remote_num_prompt_tokens));
  BATON_TRY(read_block_size(object, params.remote_block_size));
  BATON_TRY(read(object, "metaserver", params.metaserver));
  if (const Json* member = find(object, "last_token_id")) {
    BATON_TRY_ASSIGN(const int64_t token,
                     integer_within(*member, "last_token_id", 0, std::numeric_limits<int32_t>::max()));
    params.last_token_id = static_cast<int32_t>(token);
  }
  BATON_TRY_ASSIGN(const auto offer, read_u64(object, "baton_offer_id"));
  params.baton_offer_id = offer.value_or(0);
  BATON_TRY_ASSIGN(params.baton_seed, read_u64(object, "baton_seed"));
  if (const Json* member = find(object, "kv_lease_duration")) {
    if (!member->is_number()) return wrong_type("kv_lease_duration", "a number of seconds", *member);
    const double seconds = member->get<double>();
    if (!(seconds >= 0 && seconds <= 1e6)) {
      return fail(Code::kInvalidArgument, "kv_transfer_params.kv_lease_duration must be 0 to 1e6 seconds, not {}",
                  seconds);
    }
    params.kv_lease_duration_s = seconds;
  }
  BATON_TRY(read_resume(object, params));
  params.other = object;
  for (const char* name : kKnown) params.other.erase(name);
  return params;
}

Json KvTransferParams::to_json() const {
  Json json = other.is_object() ? other : Json::object();
  json["do_remote_decode"] = do_remote_decode;
  json["do_remote_prefill"] = do_remote_prefill;
  json["remote_engine_id"] = text_or_null(remote_engine_id);
  json["remote_host"] = text_or_null(remote_host);
  json["remote_port"] = remote_port == 0 ? Json(nullptr) : Json(remote_port);
  json["remote_block_ids"] = remote_block_ids.empty() ? Json(nullptr) : Json(remote_block_ids);
  if (!metaserver.empty()) json["metaserver"] = metaserver;
  if (!remote_request_id.empty()) json["remote_request_id"] = remote_request_id;
  if (last_token_id) json["last_token_id"] = *last_token_id;
  if (baton_offer_id != 0) json["baton_offer_id"] = hex64(baton_offer_id);
  if (baton_seed) json["baton_seed"] = hex64(*baton_seed);
  if (!do_remote_prefill) return json;
  // What P answers: the topology members that the public proxies and connectors expect. One rank per engine.
  json["remote_num_prompt_tokens"] = remote_num_prompt_tokens;
  json["remote_num_tokens"] = remote_num_prompt_tokens;  // NixlConnector's name
  json["remote_block_size"] = remote_block_size;
  json["num_prompt_blocks"] = remote_block_ids.empty() ? 0 : remote_block_ids.front().size();
  for (const char* one : {"remote_ptp_size", "remote_pcp_size", "remote_dcp_size", "tp_size", "dcp_size", "pp_size"}) {
    json[one] = 1;
  }
  json["transfer_mode"] = "pull";
  if (kv_lease_duration_s > 0) {
    json["kv_lease_version"] = 1;
    json["kv_lease_duration"] = kv_lease_duration_s;
  }
  return json;
}

}  // namespace baton::wire
