// Names that come from a file, fit for a message: one line, plain ASCII, of bounded length.
#pragma once

#include <string>
#include <string_view>

namespace baton::weights {

// Control characters and bytes above 126 become \xNN; what is longer than `bytes_max` is cut and ends in "...".
std::string printable(std::string_view text, size_t bytes_max = 200);

}  // namespace baton::weights
