// What Kimi K3's format does to a conversation before it writes it. Pure.
#pragma once

#include <string>
#include <vector>

#include "text/chat/formats/chat_json.h"

namespace baton::text {

// A tool's answer with the name of the call it answers; other messages as they are.
struct KimiK3Message {
  ChatMessage message;
  std::string tool;  // "" unless a call's id named it
};

// Each run of tool messages in the order of the calls they answer (tool_call_id, or vLLM's NAME:POSITION), named after
// these. A run with an id that no call of the last assistant message has keeps its order.
Result<std::vector<KimiK3Message>> order_tool_results(const std::vector<ChatMessage>& messages);

// A call's arguments: an object to be written member by member, or text that is no JSON and is written as it came.
struct KimiK3Arguments {
  OrderedJson members = OrderedJson::object();
  std::optional<std::string> raw;
};
// kInvalidArgument for JSON that is no object.
Result<KimiK3Arguments> read_arguments(const ToolCall& call);

}  // namespace baton::text
