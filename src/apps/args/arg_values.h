// Values on the command line: human-readable integers, JSON, numbers. Errors name the flag as argparse does.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::apps {

// "32k" 32000, "32K" 32768, "1.5m" 1500000 (decimals only with the powers of 1000), "-1", "auto" (-1).
std::optional<int64_t> parse_human_int(std::string_view text);
std::optional<int64_t> parse_plain_int(std::string_view text);
std::optional<double> parse_plain_float(std::string_view text);
// A dotted flag's value: JSON, else a human-readable integer, else the text itself.
nlohmann::json parse_loose_value(std::string_view text);
// "argument --max-num-seqs: invalid int value: 'x'"
Status invalid_value(std::string_view flag, std::string_view kind, std::string_view value);

}  // namespace baton::apps
