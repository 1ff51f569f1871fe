// Reading JSON that may hold anything, without exceptions: a wrong type reads as "not there" or is an error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::text {

using Json = nlohmann::json;

// The member, or null (a JSON null) if `object` is no object or lacks it.
const Json& json_member(const Json& object, std::string_view key);
std::string json_string(const Json& object, std::string_view key, std::string_view otherwise = {});
bool json_bool(const Json& object, std::string_view key, bool otherwise);
std::optional<int64_t> json_int(const Json& value);
// "\"type\" of the component", or "?" without one.
std::string json_type(const Json& component);
// Text of at most `bytes_max`; kInvalidArgument with the place of the error. Nesting is bounded.
Result<Json> parse_json(std::string_view text, std::string_view name);

}  // namespace baton::text
