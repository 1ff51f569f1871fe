// Cuts decoded text into markers and the text between them, holding back what may still become a marker.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace baton::text {

enum class Marker : uint8_t {
  kNone,
  kThinkOpen,
  kThinkClose,
  kK2SectionBegin,
  kK2SectionEnd,
  kK2CallBegin,
  kK2ArgumentBegin,
  kK2CallEnd,
  kHermesBegin,
  kHermesEnd,
  kDeepSeekSectionBegin,
  kDeepSeekSectionEnd,
  kDeepSeekCallBegin,
  kDeepSeekSeparator,
  kDeepSeekCallEnd,
  kK3Open,
  kK3Close,
  kK3Separator,
  kK3EndOfMessage,
};

struct MarkerSpelling {
  Marker marker;
  std::string_view text;     // begins with '<'
  bool always_text = false;  // found in the text even where it is a token
};

struct Lexeme {
  Marker marker = Marker::kNone;
  std::string_view text;  // of a marker: its spelling
  bool is_token = false;  // a marker believed as a token: it is never text that a reader should see
};

// Takes lexemes in order. Stages of a parser are chained sinks.
class LexemeSink {
 public:
  virtual ~LexemeSink() = default;
  virtual void take(const Lexeme& lexeme) = 0;
  virtual void finish() = 0;
};

class MarkerLexer {
 public:
  MarkerLexer(std::vector<MarkerSpelling> markers, const std::set<std::string>* tokens);
  void push(std::string_view text, bool is_token, LexemeSink& sink);
  // What was held back is text after all.
  void finish(LexemeSink& sink);

 private:
  struct Known {
    MarkerSpelling spelling;
    bool by_token;
  };
  const Known* starting_at(std::string_view text, bool& may_become) const;

  std::vector<Known> markers_;
  std::string held_;
};

}  // namespace baton::text
