// A chat request's messages, made ready for the chat template, and the template's variables. Pure.
#pragma once

#include "server/request_fields.h"
#include "server/server_context.h"

namespace baton::server {

// Renders the prompt of a body with "messages" (chat completions and /tokenize share this). `generation_prompt_default`
// is add_generation_prompt where the body is silent.
Parsed<std::string> render_chat(const ServerContext& context, const Json& body);

}  // namespace baton::server
