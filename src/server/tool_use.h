// Tools in a chat request: what may be called, and what earlier turns have called. Pure.
#pragma once

#include "server/request_fields.h"
#include "server/server_context.h"

namespace baton::server {

struct ToolUse {
  bool calls = false;       // the answer may hold calls
  bool hide_tools = false;  // the template is not to see the tools
  bool parallel = true;     // false: only the first call of an answer is shown
};

// `tools`, `tool_choice` and `parallel_tool_calls`. With `prefill_only` (the answer of a prefill engine, which nobody
// reads) the server need not be able to parse calls.
Parsed<ToolUse> parse_tool_use(const ServerOptions& options, const Json& body, bool prefill_only);

// An assistant message's tool_calls as templates want them: arguments as an object where they are one. An empty list
// goes.
Parsed<void> adapt_tool_calls(Json& message, const std::string& where);

// What `thinking` or `enable_thinking` among the template's variables say.
std::optional<bool> thinking_of(const Json& variables);

}  // namespace baton::server
