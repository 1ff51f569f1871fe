// The escapes of a string literal, as Python's unicode-escape reads them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::text::jinja {

// `body` is what stands between the quotes.
Result<std::string> unescape_literal(std::string_view body);

}  // namespace baton::text::jinja
