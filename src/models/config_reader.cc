#include "models/config_reader.h"

#include <cfloat>

namespace baton::models {

const nlohmann::json* ConfigReader::find(std::string_view key) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(full_key(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigReader::wrong_type(std::string_view key, std::string_view wanted, const nlohmann::json& found) {
  std::string text = found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  refuse(Code::kInvalidArgument, "{} must be {}, not {}", full_key(key), wanted, text);
}

int64_t ConfigReader::positive(std::string_view key, int64_t max) {
  if (absent(key)) {
    refuse(Code::kInvalidArgument, "{} is missing", full_key(key));
    return 1;
  }
  return positive_or(key, 1, max);
}

int64_t ConfigReader::positive_or(std::string_view key, int64_t fallback, int64_t max) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  // Above int64 an unsigned number would turn negative; both are refused alike.
  const bool integer = value->is_number_integer();
  const int64_t number = integer ? value->get<int64_t>() : 0;
  if (integer && number >= 1 && number <= max) return number;
  wrong_type(key, fmt::format("an integer from 1 to {}", max), *value);
  return 1;
}

double ConfigReader::positive_real(std::string_view key) {
  if (absent(key)) refuse(Code::kInvalidArgument, "{} is missing", full_key(key));
  return positive_real_or(key, 1);
}

double ConfigReader::positive_real_or(std::string_view key, double fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : 0;
  // It ends up as a float in every kernel, where it must be neither 0 nor infinite.
  if (number >= FLT_MIN && number <= FLT_MAX) return number;
  wrong_type(key, "a number above 0 that fits fp32", *value);
  return 1;
}

bool ConfigReader::flag_or(std::string_view key, bool fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  wrong_type(key, "true or false", *value);
  return fallback;
}

std::string ConfigReader::text_or(std::string_view key, std::string fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  wrong_type(key, "a string", *value);
  return fallback;
}

const nlohmann::json* ConfigReader::object(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  wrong_type(key, "an object", *value);
  return nullptr;
}

}  // namespace baton::models
