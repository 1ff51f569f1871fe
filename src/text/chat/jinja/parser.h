// Tokens to a syntax tree, by Jinja2's grammar.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/chat/jinja/ast.h"

namespace baton::text::jinja {

// Errors name the line. Unknown filters, tests and tags are errors here, whether or not they would be reached.
Result<Body> parse(std::string_view source);

}  // namespace baton::text::jinja
