#include "text/tokenizer/json_access.h"

#include "base/json_depth.h"

namespace baton::text {
namespace {

constexpr int kDepthMax = 64;  // nlohmann's parser keeps its own stack; what walks the tree later does not

}  // namespace

const Json& json_member(const Json& object, std::string_view key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string json_string(const Json& object, std::string_view key, std::string_view otherwise) {
  const Json& value = json_member(object, key);
  return value.is_string() ? value.get_ref<const std::string&>() : std::string(otherwise);
}

bool json_bool(const Json& object, std::string_view key, bool otherwise) {
  const Json& value = json_member(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::optional<int64_t> json_int(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::string json_type(const Json& component) { return json_string(component, "type", "?"); }

Result<Json> parse_json(std::string_view text, std::string_view name) {
  if (json_nests_deeper_than(text, kDepthMax))
    return fail(Code::kInvalidArgument, "{}: nested deeper than {} levels", name, kDepthMax);
  try {
    return Json::parse(text);
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, "{}: not valid JSON: {}", name, error.what());
  }
}

}  // namespace baton::text
