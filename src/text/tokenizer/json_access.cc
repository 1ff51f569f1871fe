#include "text/tokenizer/json_access.h"

namespace baton::text {
namespace {

constexpr int kDepthMax = 64;

// nlohmann's parser keeps its own stack, but what walks the tree later does not.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDepthMax) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

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
  if (too_deep(text)) return fail(Code::kInvalidArgument, "{}: nested deeper than {} levels", name, kDepthMax);
  try {
    return Json::parse(text);
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, "{}: not valid JSON: {}", name, error.what());
  }
}

}  // namespace baton::text
