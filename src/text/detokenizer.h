// Streaming detokenizer: token ids in, whole UTF-8 characters out. One per sequence; one thread.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace baton::text {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}
  // The text that is certain after this token: never half a character. Joined over all calls plus finish(), it equals
  // decode() of all tokens.
  std::string push(TokenId id);
  // What was held back, with U+FFFD for an incomplete character.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool at_start_ = true;
  std::string held_;
};

}  // namespace baton::text
