// Tokenizer files state regular expressions in Oniguruma's dialect (the `tokenizers` library runs that engine). This
// turns one into PCRE2's dialect with the same meaning: `\s` is Unicode White_Space, `\w` and `\b` Unicode's words,
// `\h` a hex digit, `$` and `^` bind to lines, `[x&&y]` and `[x[y]]` are set operations (which PCRE2 misreads in
// silence), `\uHHHH` is a code point. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::text {

// kUnimplemented names a construct that has no sure counterpart; kInvalidArgument a pattern that is not well formed.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace baton::text
