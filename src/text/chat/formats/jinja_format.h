// A Jinja template as a chat format.
#pragma once

#include <memory>
#include <string_view>

#include "text/chat_format.h"
#include "text/chat_template.h"

namespace baton::text {

std::unique_ptr<ChatFormat> make_template_format(std::unique_ptr<ChatTemplate> chat_template, std::string_view source);

}  // namespace baton::text
