// Reading a request's JSON: what is absent, and what has a type that no format can use.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::text {

using OrderedJson = nlohmann::ordered_json;

// The member, or null (a JSON null) if `object` is no object or lacks it.
const OrderedJson& chat_member(const OrderedJson& object, std::string_view key);
// Python's truth: not null, false, 0, "" or empty.
bool is_truthy(const OrderedJson& value);
// The member as text; "" where it is absent or null. kInvalidArgument for another type.
Result<std::string> chat_string(const OrderedJson& object, std::string_view key);
// A message's content: its text, or its list of text parts; nothing for null. kInvalidArgument for images and the rest,
// which text formats can't hold.
Result<std::vector<std::string>> content_parts(const OrderedJson& message);
// The same as one string.
Result<std::string> content_text(const OrderedJson& message);
// reasoning_content, else reasoning.
Result<std::string> reasoning_text(const OrderedJson& message);

// The messages: an array of objects with a role each.
struct ChatMessage {
  std::string role;
  const OrderedJson* json;
};
Result<std::vector<ChatMessage>> read_messages(const OrderedJson& variables);

struct ToolCall {
  std::optional<std::string> id;
  std::string name;
  const OrderedJson* arguments;  // never null; may hold null
};
Result<std::vector<ToolCall>> tool_calls_of(const OrderedJson& message);
// Arguments as the text that stands in a prompt: a string as it is, anything else as JSON; "" for none.
Result<std::string> arguments_text(const ToolCall& call);

// thinking, else enable_thinking, else false where reasoning_effort is "none", else nothing.
std::optional<bool> thinking_option(const OrderedJson& variables);

}  // namespace baton::text
