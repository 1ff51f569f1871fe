// Splits a template into tokens with the white-space rules of trim_blocks, lstrip_blocks and the signs - and +.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::text::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;  // data and strings are unescaped; numbers without underscores
  int line;
};

// The last token is kEnd. Errors name the line.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace baton::text::jinja
