// A chat request's messages, made ready for the chat template, and the template's variables. Pure.
#pragma once

#include "server/request_fields.h"
#include "server/server_context.h"

namespace baton::server {

struct RenderedChat {
  std::string text;
  std::optional<bool> thinking;  // as the template's variables say it
};

// Renders the prompt of a body with "messages" (chat completions and /tokenize share this). `hide_tools`: the
// template does not see them.
Parsed<RenderedChat> render_chat(const ServerContext& context, const Json& body, bool hide_tools = false);

}  // namespace baton::server
