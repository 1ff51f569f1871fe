#include "text/tokenizer/kimi_split.h"

#include <algorithm>

#include "text/tokenizer/kimi_classes.h"
#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

constexpr size_t kPartCharacters = 400'000;
constexpr size_t kRunCharacters = 25'000;
constexpr int32_t kLongS = 0x17F;  // ſ, which folds to s

struct Character {
  int32_t code_point = -1;  // -1: the end
  uint8_t flags = 0;
  uint32_t size = 0;

  bool is(uint8_t classes) const { return (flags & classes) != 0; }
  bool ends() const { return code_point < 0; }
  bool is_newline() const { return code_point == '\n' || code_point == '\r'; }
  // [^\s\p{L}\p{N}]
  bool is_symbol() const { return !ends() && !is(kKimiSpace | kKimiLetter | kKimiNumber); }
  // [^\r\n\p{L}\p{N}]
  bool may_lead_word() const { return !ends() && !is_newline() && !is(kKimiLetter | kKimiNumber); }
};

class Cutter {
 public:
  explicit Cutter(std::string_view text) : text_(text) {}

  // The end of the piece that starts at `at`, which is before the end.
  size_t piece_end(size_t at) const {
    const Character first = character(at);
    if (first.is(kKimiHan)) return run_end(at, [](const Character& c) { return c.is(kKimiHan); });
    if (const size_t end = word_end(at, first); end > at) return end;
    if (first.is(kKimiNumber)) return number_end(at);
    if (const size_t end = symbols_end(at, first); end > at) return end;
    return space_end(at);
  }

 private:
  Character character(size_t at) const {
    if (at >= text_.size()) return {};
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte < 0x80) return {byte, classes_.of(byte), 1};
    const Utf8Step step = decode_utf8(text_.substr(at));
    return {step.code_point, classes_.of(std::max(step.code_point, 0)), step.size};
  }

  template <typename Wanted>
  size_t run_end(size_t at, Wanted wanted) const {
    for (;;) {
      const Character c = character(at);
      if (c.ends() || !wanted(c)) return at;
      at += c.size;
    }
  }

  // [U]*[V]+ from `at`: the longest run of U, then of V; where no V follows, the run is given back up to its last
  // character that is also a V. 0 if there is none.
  size_t lower_word_end(size_t at) const {
    size_t last_lower_end = 0;
    for (;;) {
      const Character c = character(at);
      if (!c.is(kKimiUpper)) break;
      at += c.size;
      if (c.is(kKimiLower)) last_lower_end = at;
    }
    if (!character(at).is(kKimiLower)) return last_lower_end;
    return run_end(at, [](const Character& c) { return c.is(kKimiLower); });
  }
  // [U]+[V]*, which is only tried where no V can end a word. 0 if there is no U.
  size_t upper_word_end(size_t at) const {
    const size_t end = run_end(at, [](const Character& c) { return c.is(kKimiUpper); });
    return end > at ? run_end(end, [](const Character& c) { return c.is(kKimiLower); }) : 0;
  }

  size_t word_end(size_t at, const Character& first) const {
    const size_t inner = first.may_lead_word() ? at + first.size : at;
    size_t end = inner > at ? lower_word_end(inner) : 0;
    if (end == 0) end = lower_word_end(at);
    if (end == 0 && inner > at) end = upper_word_end(inner);
    if (end == 0) end = upper_word_end(at);
    return end == 0 ? at : contraction_end(end);
  }

  size_t contraction_end(size_t at) const {
    if (character(at).code_point != '\'') return at;
    const Character first = character(at + 1);
    const auto lower = [](int32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
    const int32_t c = lower(first.code_point);
    const size_t one = at + 1 + first.size;
    if (c == 's' || c == kLongS || c == 't' || c == 'm' || c == 'd') return one;
    const int32_t next = lower(character(one).code_point);
    const bool pair = ((c == 'r' || c == 'v') && next == 'e') || (c == 'l' && next == 'l');
    return pair ? one + 1 : at;
  }

  size_t number_end(size_t at) const {
    for (int count = 0; count < 3; ++count) {
      const Character c = character(at);
      if (!c.is(kKimiNumber)) break;
      at += c.size;
    }
    return at;
  }

  size_t symbols_end(size_t at, const Character& first) const {
    const size_t begin = first.code_point == ' ' ? at + 1 : at;
    const size_t end = run_end(begin, [](const Character& c) { return c.is_symbol(); });
    if (end == begin) return at;
    return run_end(end, [](const Character& c) { return c.is_newline(); });
  }

  // Up to the last newline of the run; else the run without its last character, which may lead a word; else all of it.
  size_t space_end(size_t at) const {
    size_t end = at, last = at, after_newline = at;
    for (;;) {
      const Character c = character(end);
      if (!c.is(kKimiSpace)) break;
      last = end;
      end += c.size;
      if (c.is_newline()) after_newline = end;
    }
    if (after_newline > at) return after_newline;
    if (end == text_.size() || last == at) return std::max(end, at + 1);
    return last;
  }

  std::string_view text_;
  const KimiClasses& classes_ = KimiClasses::get();
};

// Python's str.isspace: the pattern's white space and U+001C to U+001F.
bool is_python_space(int32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

}  // namespace

void split_kimi(std::string_view text, std::vector<Span>& out) {
  const Cutter cutter(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = cutter.piece_end(at);
    out.push_back({at, end});
    at = end;
  }
}

void cut_kimi(std::string_view text, std::vector<Span>& out) {
  if (text.size() <= kRunCharacters) {  // bytes are never fewer than characters
    if (!text.empty()) out.push_back({0, text.size()});
    return;
  }
  size_t begin = 0, in_part = 0, run = 0;
  bool in_space = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text.substr(at));
    const bool space = is_python_space(step.code_point);
    const bool new_part = in_part == kPartCharacters;
    run = !new_part && space == in_space ? run + 1 : 1;
    if (new_part || run > kRunCharacters) {
      out.push_back({begin, at});
      begin = at;
      run = 1;
    }
    in_part = new_part ? 1 : in_part + 1;
    in_space = space;
    at += step.size;
  }
  out.push_back({begin, text.size()});
}

}  // namespace baton::text
