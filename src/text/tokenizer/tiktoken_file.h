// A tiktoken rank file: a line is a token's bytes in base64, a space and its rank. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::text {

inline constexpr size_t kTiktokenRanksMax = size_t{1} << 22;
inline constexpr size_t kTiktokenTokenBytesMax = 4096;

// The tokens by rank. kInvalidArgument with the line for what is not canonical, for a token or rank given twice, and if
// ranks are missing or not every byte has a token of its own.
Result<std::vector<std::string>> parse_tiktoken_file(std::string_view text);

}  // namespace baton::text
