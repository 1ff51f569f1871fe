#include "text/chat/formats/chat_json.h"

#include "text/chat/formats/python_json.h"

namespace baton::text {

const OrderedJson& chat_member(const OrderedJson& object, std::string_view key) {
  static const OrderedJson null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool is_truthy(const OrderedJson& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

Result<std::string> chat_string(const OrderedJson& object, std::string_view key) {
  const OrderedJson& value = chat_member(object, key);
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  return fail(Code::kInvalidArgument, "'{}' must be a string", key);
}

Result<std::vector<std::string>> content_parts(const OrderedJson& message) {
  const OrderedJson& content = chat_member(message, "content");
  std::vector<std::string> parts;
  if (content.is_null()) return parts;
  if (content.is_string()) return std::vector<std::string>{content.get<std::string>()};
  if (!content.is_array()) return fail(Code::kInvalidArgument, "'content' must be a string or a list of parts");
  for (const OrderedJson& part : content) {
    if (part.is_string()) {
      parts.push_back(part.get<std::string>());
    } else if (chat_member(part, "text").is_string()) {
      parts.push_back(part["text"].get<std::string>());
    } else {
      return fail(Code::kInvalidArgument, "'content' has a part without text: this model takes text only");
    }
  }
  return parts;
}

Result<std::string> content_text(const OrderedJson& message) {
  BATON_TRY_ASSIGN(const auto parts, content_parts(message));
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

Result<std::string> reasoning_text(const OrderedJson& message) {
  const bool first = is_truthy(chat_member(message, "reasoning_content"));
  return chat_string(message, first ? "reasoning_content" : "reasoning");
}

Result<std::vector<ChatMessage>> read_messages(const OrderedJson& variables) {
  const OrderedJson& list = chat_member(variables, "messages");
  if (!list.is_array()) return fail(Code::kInvalidArgument, "'messages' must be a list");
  std::vector<ChatMessage> messages;
  messages.reserve(list.size());
  for (const OrderedJson& message : list) {
    const OrderedJson& role = chat_member(message, "role");
    if (!role.is_string()) {
      return fail(Code::kInvalidArgument, "'messages.{}' must be an object with a role", messages.size());
    }
    messages.push_back({role.get<std::string>(), &message});
  }
  return messages;
}

Result<std::vector<ToolCall>> tool_calls_of(const OrderedJson& message) {
  std::vector<ToolCall> calls;
  const OrderedJson& list = chat_member(message, "tool_calls");
  if (list.is_null()) return calls;
  if (!list.is_array()) return fail(Code::kInvalidArgument, "'tool_calls' must be a list");
  for (const OrderedJson& one : list) {
    const OrderedJson& inner = chat_member(one, "function");
    const OrderedJson& function = inner.is_object() ? inner : one;
    ToolCall call{.id = std::nullopt, .name = "", .arguments = &chat_member(function, "arguments")};
    BATON_TRY_ASSIGN(call.name, chat_string(function, "name"));
    if (call.name.empty()) {
      return fail(Code::kInvalidArgument, "'tool_calls.{}' has no function name", calls.size());
    }
    BATON_TRY_ASSIGN(std::string id, chat_string(one, "id"));
    if (!id.empty()) call.id = std::move(id);
    calls.push_back(std::move(call));
  }
  return calls;
}

Result<std::string> arguments_text(const ToolCall& call) {
  if (call.arguments->is_null()) return std::string();
  if (call.arguments->is_string()) return call.arguments->get<std::string>();
  return python_json(*call.arguments, {});
}

std::optional<bool> thinking_option(const OrderedJson& variables) {
  for (const char* key : {"thinking", "enable_thinking"}) {
    if (const OrderedJson& value = chat_member(variables, key); value.is_boolean()) return value.get<bool>();
  }
  const OrderedJson& effort = chat_member(variables, "reasoning_effort");
  if (effort.is_string() && effort.get_ref<const std::string&>() == "none") return false;
  return std::nullopt;
}

}  // namespace baton::text
