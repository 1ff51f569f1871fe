// Between JSON and the values of a template.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/chat/jinja/interpreter.h"

namespace baton::text::jinja {

// Error: nested too deeply, or an integer beyond 64 signed bits.
Result<Value> value_from_json(Interpreter& interpreter, const nlohmann::ordered_json& json);

// json.dumps(value, ensure_ascii, indent, separators, sort_keys).
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
Result<void> append_json(std::string& out, const Value& value, const JsonStyle& style, TextLimit limit);

}  // namespace baton::text::jinja
