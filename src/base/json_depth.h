// How deep a JSON text nests, before any parser builds a tree of it: what walks such a tree later recurses.
#pragma once

#include <string_view>

namespace baton {

// True when `text`, read as JSON, opens more than `most` brackets inside each other. Brackets in strings don't count.
bool json_nests_deeper_than(std::string_view text, int most);

}  // namespace baton
