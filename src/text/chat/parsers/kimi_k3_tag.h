// Tags of the Kimi K3 format: <|open|>NAME attributes<|sep|> and <|close|>NAME<|sep|>. Finds them in a row of lexemes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/parsers/marker_lexer.h"

namespace baton::text {

struct K3Tag {
  bool opens = false;
  bool is_token = false;  // its markers were tokens
  std::string name;       // think, response, tools, call, argument, json, message; else it is no tag
  std::string raw;        // as written
  // The value of an attribute, unescaped; "" when absent.
  std::string attribute(std::string_view key) const;
};

class K3TagReader {
 public:
  // What a lexeme has completed: text, a tag, or the end of the message. Several may come of one lexeme.
  struct Part {
    std::string text;
    std::optional<K3Tag> tag;
    bool end_of_message = false;
  };
  std::vector<Part> take(const Lexeme& lexeme);
  // Text of a tag that never ended; nothing where its marker was a token.
  std::string finish();

 private:
  // Attribute values are written by the model: a bound on what is held for them.
  static constexpr size_t kHeaderBytesMax = 64 << 10;
  static constexpr size_t kSpaceBytesMax = 64;  // between a marker and its name
  bool plausible() const;
  void give_up(std::vector<Part>& parts);

  bool inside_ = false;
  K3Tag tag_;
};

}  // namespace baton::text
