// What tokenizer_config.json adds to a vocabulary: which tokens are special, BOS and EOS. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/json_access.h"

namespace baton::text {

struct TokenizerConfig {
  std::string tokenizer_class;
  std::optional<bool> add_bos, add_eos;
  std::optional<std::string> bos, eos;
  std::vector<std::string> special_tokens;  // contents of bos_token, eos_token, pad_token, ... and the additional ones
  std::vector<AddedToken> added_tokens;     // added_tokens_decoder, by id
};

Result<TokenizerConfig> parse_tokenizer_config(const Json& json);
// One entry of "added_tokens" or "added_tokens_decoder" (the id is given by the caller).
Result<AddedToken> parse_added_token(const Json& json, std::optional<int64_t> id);

}  // namespace baton::text
