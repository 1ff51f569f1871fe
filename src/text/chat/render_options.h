// Bounds and clock of a render; the defaults suit a server. Tests narrow them.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string_view>

#include "text/chat/jinja/interpreter.h"
#include "text/chat_template.h"

namespace baton::text {

struct RenderOptions {
  jinja::Limits limits;
  std::optional<std::time_t> now;  // what strftime_now shows; absent: the clock
};

Result<std::unique_ptr<ChatTemplate>> parse_chat_template(std::string_view source, const RenderOptions& options);

}  // namespace baton::text
