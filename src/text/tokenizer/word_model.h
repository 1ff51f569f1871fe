// What encodes one word, once the text is normalised and cut. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace baton::text {

class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual void encode_word(std::string_view word, std::vector<TokenId>& out) const = 0;
  // True if words may be any bytes: each byte has a token, and nothing has to be UTF-8.
  virtual bool takes_bytes() const = 0;
};

}  // namespace baton::text
