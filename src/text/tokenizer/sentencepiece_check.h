// What libsentencepiece believes unseen of a tokenizer.model: the places that its map of characters points to. A map
// with one wrong bit makes the library read outside of it.
#pragma once

#include <string_view>

#include "base/status.h"

namespace baton::text {

// kInvalidArgument for a file that is no protocol buffer, or whose character maps point outside of themselves.
Result<void> check_sentencepiece_model(std::string_view model);

}  // namespace baton::text
