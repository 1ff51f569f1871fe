// A chat request's messages, made ready for the chat template, and the template's variables. Pure.
#pragma once

#include "server/request_fields.h"
#include "server/server_context.h"

namespace baton::server {

struct RenderedChat {
  std::vector<text::ChatSegment> segments;
  std::optional<bool> thinking;    // as the template's variables say it
  bool continues_content = false;  // the model goes on with a message whose content has begun
};

// The prompt of a body with "messages" (chat completions and /tokenize share this), by the checkpoint's chat format.
// `hide_tools`: the format does not see them.
Parsed<RenderedChat> render_chat(const ServerContext& context, const Json& body, bool hide_tools = false);
// Its tokens; refused before tokenising where they can't fit the context.
Parsed<std::vector<TokenId>> encode_chat(const ServerContext& context, const std::vector<text::ChatSegment>& segments,
                                         bool add_special_tokens);

}  // namespace baton::server
