// What a load consists of: one prompt, how much is to be generated, and, in a replay, when.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/strong_id.h"

namespace baton::bench {

struct Sample {
  std::string prompt;
  std::vector<TokenId> prompt_ids;  // of `prompt`, without special tokens added; for an engine in this process
  int64_t output_tokens = 0;        // max_tokens of the request
  std::optional<double> at_s;       // seconds after the start; absent: as the arrival process says
  int64_t prompt_tokens() const { return std::ssize(prompt_ids); }
};

}  // namespace baton::bench
