// Tools as TypeScript types, the way Kimi K2.5 and K2.6 are told of them (the checkpoints' tool_declaration_ts.py).
#pragma once

#include <optional>
#include <string>

#include "text/chat/formats/chat_json.h"

namespace baton::text {

// "# Tools\n\n## functions\nnamespace functions {...}\n"; nothing for a schema that can't be written so (oneOf, a
// member without a type, an enum of another type): the checkpoints then give the tools as JSON.
std::optional<std::string> tools_to_typescript(const OrderedJson& tools);

// Every object's members by name, at all levels that a schema has; deeper ones are left as they are.
OrderedJson deep_sorted(const OrderedJson& value);

}  // namespace baton::text
