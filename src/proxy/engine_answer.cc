#include "proxy/engine_answer.h"

#include <algorithm>

#include "proxy/json_scan.h"
#include "wire/ordered_json.h"

namespace baton::proxy {

Outcome outcome_of(const Status& status) {
  switch (status.code()) {
    case Code::kUnavailable:
      return Outcome::kUnreachable;
    case Code::kDeadlineExceeded:
      return Outcome::kSlow;
    default:
      return Outcome::kFailed;
  }
}

int client_status_of(const Status& status) { return status.code() == Code::kDeadlineExceeded ? 504 : 502; }

bool is_about_the_request(int status) {
  return (status >= 400 && status < 500 && status != 408 && status != 429) || status == 501;
}

bool is_busy(const net::HttpResponse& answer, bool baton) {
  return answer.status == 429 || answer.status == 408 ||
         (answer.status == 503 && !baton && answer.headers.get("Retry-After"));
}

int error_code(const Json& body) {
  const Json::json_pointer code("/error/code");
  const bool given = body.contains(code) && body[code].is_number_integer();
  const auto value = given ? body[code].get<int64_t>() : 0;
  return value >= 400 && value < 600 ? static_cast<int>(value) : 0;
}

Json parse_answer(std::string_view text) {
  return wire::parse_ordered_json(text, kMaxJsonDepth, UINT64_MAX).value_or(Json());
}

namespace {

// For what the scanner does not take, or what is an error.
Json parse_all_of_prefill(std::string_view text, std::string& kv_params) {
  Json answer = parse_answer(text);
  const auto params = answer.find("kv_transfer_params");
  if (params == answer.end() || !params->is_object() || params->empty()) return answer;
  kv_params = params->dump();
  for (const char* name : {"baton_offer_id", "baton_seed"})
    if (const auto found = params->find(name); found != params->end()) answer[name] = *found;
  return answer;
}

}  // namespace

Json parse_prefill_answer(std::string_view text, std::string& kv_params) {
  kv_params.clear();
  const auto members = scan_object(text, kMaxJsonDepth);
  const bool quick = members && std::ranges::find(*members, "error", &JsonMember::key) == members->end();
  if (!quick) return parse_all_of_prefill(text, kv_params);
  Json answer = Json::object();
  for (const auto& [key, value, _] : *members) {
    if (key == "usage") answer["usage"] = parse_answer(value);
    const auto params = key == "kv_transfer_params" ? scan_object(value, kMaxJsonDepth) : std::nullopt;
    if (!params || params->empty()) continue;
    kv_params = value;
    for (const auto& param : *params)
      if (param.key == "baton_offer_id" || param.key == "baton_seed") answer[param.key] = parse_answer(param.value);
  }
  return answer;
}

bool has_choice(const Json& answer) {
  const auto choices = answer.find("choices");
  return choices != answer.end() && choices->is_array() && !choices->empty() && choices->front().is_object();
}

bool has_finish_reason(const Json& chunk) {
  if (!has_choice(chunk)) return false;
  const Json& choice = chunk["choices"].front();
  const auto reason = choice.find("finish_reason");
  return reason != choice.end() && !reason->is_null();
}

bool is_aborted(const Json& answer) {
  if (!has_choice(answer)) return false;
  for (const auto& choice : answer["choices"])
    if (choice.is_object() && choice.value("finish_reason", Json()) == "abort") return true;
  return false;
}

net::HttpResponse json_answer(int status, std::string body) {
  net::HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
  response.headers.add("Content-Type", "application/json");
  return response;
}

std::string type_of(int status) {
  if (status == 503) return "ServiceUnavailableError";
  if (status == 504) return "GatewayTimeoutError";
  return "BadGatewayError";
}

net::HttpResponse error_response(int status, std::string_view message) {
  net::HttpResponse response = json_answer(status, error_json(status, type_of(status), message));
  if (status == 503) response.headers.add("Retry-After", "1");
  return response;
}

}  // namespace baton::proxy
