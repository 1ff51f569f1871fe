// The components of a tokenizer.json, from their JSON to what they do. A component or option that is not supported is
// kUnimplemented with its name: none is skipped.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/json_access.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace baton::text {

Result<Normalizer> parse_normalizer(const Json& json);

struct ParsedPreTokenizer {
  PreTokenizer steps;
  bool byte_level = false;  // words are bytes, spelled in GPT-2's alphabet
};
Result<ParsedPreTokenizer> parse_pre_tokenizer(const Json& json);

// How a token's spelling becomes its bytes, and what is taken from the start of a whole text.
struct TokenDecoder {
  std::vector<std::function<std::string(std::string)>> steps;
  std::string prefix;
  std::string bytes(std::string spelling) const;
};
Result<TokenDecoder> parse_decoder(const Json& json);

// The tokens that the post-processor puts around one text, by content.
struct Surround {
  std::vector<std::string> before, after;
};
Result<Surround> parse_post_processor(const Json& json);

}  // namespace baton::text
