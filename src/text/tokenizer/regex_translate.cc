#include "text/tokenizer/regex_translate.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <optional>

#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

constexpr size_t kPatternMax = 32768;
constexpr int kClassDepthMax = 16;

// Sets, without their brackets.
constexpr std::string_view kSpace =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWordInClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside of classes that engine goes by another table below U+0100, in which superscript digits and fractions are
// word characters.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHex = "0-9a-fA-F";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}
  Result<std::string> run();

 private:
  bool done() const { return at_ >= pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  std::unexpected<Status> unsupported(std::string_view what) const {
    return fail(Code::kUnimplemented, "regex \"{}\": {} at byte {} is not supported", pattern_, what, at_);
  }
  std::unexpected<Status> malformed(std::string_view what) const {
    return fail(Code::kInvalidArgument, "regex \"{}\": {} at byte {}", pattern_, what, at_);
  }
  Result<void> group();
  Result<void> quantifier();
  Result<void> escape();
  Result<std::string> char_class();
  Result<std::string> class_escape(bool& is_set);
  Result<std::string> property();
  Result<std::string> hex(size_t digits_min, size_t digits_max);

  std::string_view pattern_;
  size_t at_ = 0;
  int class_depth_ = 0;
  std::string out_;
};

// PCRE2 reads "\p{Han}" as Script_Extensions, which takes in the punctuation that scripts share; "sc:" is the script.
bool is_script(std::string_view name) {
  const std::string pattern = fmt::format("\\p{{sc:{}}}", name);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Result<std::string> Translator::run() {
  if (pattern_.size() > kPatternMax) {
    return fail(Code::kInvalidArgument, "a regex of {} bytes: at most {}", pattern_.size(), kPatternMax);
  }
  if (!is_valid_utf8(pattern_)) return malformed("invalid UTF-8");
  while (!done()) {
    switch (pattern_[at_]) {
      case '\\':
        BATON_TRY(escape());
        break;
      case '[': {
        ++at_;
        BATON_TRY_ASSIGN(const std::string set, char_class());
        out_ += set;
        break;
      }
      case '(':
        BATON_TRY(group());
        break;
      case '{':
        BATON_TRY(quantifier());
        break;
      default:
        out_ += pattern_[at_++];
    }
  }
  return std::move(out_);
}

// The opening of a group: options have other letters here, and verbs would reach into PCRE2's limits.
Result<void> Translator::group() {
  ++at_;
  out_ += '(';
  if (next_is("*")) return unsupported("\"(*\"");
  if (!next_is("?")) return {};
  out_ += '?';
  ++at_;
  if (done()) return malformed("the pattern ends inside of \"(?\"");
  const char kind = pattern_[at_];
  if (std::string_view("~({&RPC|").find(kind) != std::string_view::npos) return unsupported("this kind of group");
  if (std::string_view("imsx-").find(kind) == std::string_view::npos) return {};  // (?: (?= (?! (?> (?< (?#
  while (!done() && (std::isalpha(static_cast<uint8_t>(pattern_[at_])) || pattern_[at_] == '-')) {
    const char option = pattern_[at_++];
    if (option == 'm') {
      out_ += 's';  // Oniguruma's "multi-line" lets the dot match a line feed
    } else if (option == 'i' || option == 'x' || option == '-') {
      out_ += option;
    } else {
      return unsupported("this option");
    }
  }
  return {};
}

Result<void> Translator::quantifier() {
  size_t end = at_ + 1;
  size_t digits = 0, commas = 0;
  while (end < pattern_.size() && (is_digit(pattern_[end]) || pattern_[end] == ',')) {
    (is_digit(pattern_[end]) ? digits : commas) += 1;
    ++end;
  }
  if (end >= pattern_.size() || pattern_[end] != '}' || digits == 0 || commas > 1) {
    out_ += "\\{";  // not an interval: the character itself
    ++at_;
    return {};
  }
  std::string body(pattern_.substr(at_ + 1, end - at_ - 1));
  if (body.front() == ',') body.insert(body.begin(), '0');
  at_ = end + 1;
  if (next_is("+")) return unsupported("\"+\" after an interval");
  if (commas == 0 && next_is("?")) return unsupported("\"?\" after a fixed interval");
  out_ += '{' + body + '}';
  return {};
}

Result<std::string> Translator::hex(size_t digits_min, size_t digits_max) {
  uint32_t value = 0;
  size_t count = 0;
  while (count < digits_max && !done() && std::isxdigit(static_cast<uint8_t>(pattern_[at_]))) {
    const char c = static_cast<char>(std::tolower(pattern_[at_++]));
    value = value * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
    ++count;
  }
  if (count < digits_min) return malformed("too few hex digits");
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return malformed("a code point that does not exist");
  return fmt::format("\\x{{{:x}}}", value);
}

// Behind "\p" or "\P": at_ stands on the brace. Gives "{Name}".
Result<std::string> Translator::property() {
  if (!next_is("{")) return malformed("a property without braces");
  const size_t end = pattern_.find('}', at_);
  if (end == std::string_view::npos) return malformed("an open property");
  std::string name(pattern_.substr(at_ + 1, end - at_ - 1));
  at_ = end + 1;
  std::string negation;
  if (name.starts_with('^')) {
    negation = "^";
    name.erase(0, 1);
  }
  std::string folded;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') folded += static_cast<char>(std::tolower(static_cast<uint8_t>(c)));
  }
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"alpha", "Alphabetic"}, {"space", "White_Space"}, {"digit", "Nd"},    {"upper", "Uppercase"},
      {"lower", "Lowercase"},  {"letter", "L"},          {"mark", "M"},      {"number", "N"},
      {"punctuation", "P"},    {"symbol", "S"},          {"separator", "Z"}, {"other", "C"},
      {"cntrl", "Cc"},
  };
  for (const auto& [from, to] : kNames) {
    if (folded == from) return fmt::format("{{{}{}}}", negation, to);
  }
  for (const std::string_view posix : {"alnum", "blank", "graph", "print", "punct", "xdigit", "word"}) {
    if (folded == posix) return unsupported("this property");
  }
  for (const char c : name) {
    if (!std::isalnum(static_cast<uint8_t>(c)) && std::string_view(" _-&").find(c) == std::string_view::npos) {
      return unsupported("this property");
    }
  }
  return fmt::format("{{{}{}{}}}", negation, is_script(name) ? "sc:" : "", name);
}

Result<void> Translator::escape() {
  ++at_;
  if (done()) return malformed("a lone backslash at the end");
  const char c = pattern_[at_];
  const auto set = [&](std::string_view open, std::string_view inside) {
    ++at_;
    out_.append(open).append(inside).append("]");
    return Result<void>{};
  };
  switch (c) {
    case 's':
      return set("[", kSpace);
    case 'S':
      return set("[^", kSpace);
    case 'w':
      return set("[", kWord);
    case 'W':
      return set("[^", kWord);
    case 'h':
      return set("[", kHex);
    case 'H':
      return set("[^", kHex);
    case 'b':
    case 'B': {
      ++at_;
      const std::string word = fmt::format("[{}]", kWord);
      out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                       : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      return {};
    }
    case 'p':
    case 'P': {
      ++at_;
      BATON_TRY_ASSIGN(const std::string name, property());
      out_ += '\\';
      out_ += c;
      out_ += name;
      return {};
    }
    case 'u': {
      ++at_;
      BATON_TRY_ASSIGN(const std::string code, hex(4, 4));
      out_ += code;
      return {};
    }
    case 'x': {
      bool ignored = false;
      BATON_TRY_ASSIGN(const std::string code, class_escape(ignored));
      out_ += code;
      return {};
    }
    default:
      break;
  }
  // Those with one meaning in both dialects, and escaped punctuation. Back references stay as they are.
  if (std::isalpha(static_cast<uint8_t>(c)) && std::string_view("dDnrtfaeAzZGRXkK").find(c) == std::string_view::npos) {
    return unsupported(fmt::format("\"\\{}\"", c));
  }
  if (c == '0') return unsupported("an octal escape");
  if (static_cast<uint8_t>(c) >= 0x80) return out_ += c, ++at_, Result<void>{};
  out_ += '\\';
  out_ += c;
  ++at_;
  return {};
}

// An escape inside of a class: at_ stands behind the backslash. `is_set` tells a set from one character.
Result<std::string> Translator::class_escape(bool& is_set) {
  if (done()) return malformed("a lone backslash at the end");
  const char c = pattern_[at_++];
  is_set = true;
  switch (c) {
    case 's':
      return std::string(kSpace);
    case 'S':
      return std::string(kNotSpace);
    case 'w':
      return std::string(kWordInClass);
    case 'h':
      return std::string(kHex);
    case 'd':
      return std::string("\\d");
    case 'D':
      return std::string("\\D");
    case 'p':
    case 'P': {
      BATON_TRY_ASSIGN(const std::string name, property());
      return fmt::format("\\{}{}", c, name);
    }
    default:
      break;
  }
  is_set = false;
  switch (c) {
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e':
      return fmt::format("\\{}", c);
    case 'b':
      return std::string("\\x{8}");
    case 'v':
      return std::string("\\x{b}");
    case 'u':
      return hex(4, 4);
    case 'x': {
      if (next_is("{")) {
        ++at_;
        BATON_TRY_ASSIGN(const std::string code, hex(1, 8));
        if (!next_is("}")) return malformed("an open \"\\x{\"");
        ++at_;
        return code;
      }
      if (next_is("8") || next_is("9") || (!done() && std::isalpha(static_cast<uint8_t>(pattern_[at_])))) {
        return unsupported("a raw byte");
      }
      return hex(1, 2);
    }
    default:
      break;
  }
  if (std::isalnum(static_cast<uint8_t>(c))) return unsupported(fmt::format("\"\\{}\" in a class", c));
  if (static_cast<uint8_t>(c) >= 0x80) {
    --at_;
    const Utf8Step step = decode_utf8(pattern_.substr(at_));
    at_ += step.size;
    return fmt::format("\\x{{{:x}}}", step.code_point);
  }
  return fmt::format("\\{}", c);
}

// at_ stands behind the bracket. A flat class stays one; set operations become look-aheads and alternatives.
Result<std::string> Translator::char_class() {
  if (++class_depth_ > kClassDepthMax) return unsupported("a class nested this deep");
  bool negated = false;
  if (next_is("^")) {
    negated = true;
    ++at_;
  }
  std::string flat, nested, intersection;  // of the operand being read: ranges, alternatives; operands before it
  const auto operand = [&]() -> std::string {
    std::string set = flat.empty() ? std::string() : "[" + flat + "]";
    if (nested.empty()) return set.empty() ? "(?!)" : set;
    return "(?:" + set + (set.empty() ? nested.substr(1) : nested) + ")";
  };
  bool first = true, after_single = false;
  for (;; first = false) {
    if (done()) return malformed("an open class");
    if (next_is("]") && !first) {
      ++at_;
      break;
    }
    if (next_is("&&")) {
      at_ += 2;
      intersection += "(?=" + operand() + ")";
      flat.clear();
      nested.clear();
      after_single = false;
      continue;
    }
    if (next_is("[:")) {
      const size_t end = pattern_.find(":]", at_ + 2);
      if (end == std::string_view::npos) return malformed("an open POSIX set");
      return unsupported(pattern_.substr(at_, end + 2 - at_));
    }
    if (next_is("[")) {
      ++at_;
      BATON_TRY_ASSIGN(const std::string inner, char_class());
      nested += "|" + inner;
      after_single = false;
      continue;
    }
    if (next_is("-")) {
      // A range if it stands between two characters, else a hyphen.
      ++at_;
      if (!after_single || next_is("]") || next_is("&&") || next_is("[")) {
        flat += "\\-";
        after_single = first;
        continue;
      }
      flat += '-';
      bool is_set = false;
      if (next_is("\\")) {
        ++at_;
        BATON_TRY_ASSIGN(const std::string upper, class_escape(is_set));
        if (is_set) return malformed("a range that ends in a set");
        flat += upper;
      } else {
        const Utf8Step step = decode_utf8(pattern_.substr(at_));
        at_ += step.size;
        flat += fmt::format("\\x{{{:x}}}", step.code_point);
      }
      after_single = false;
      continue;
    }
    if (next_is("\\")) {
      ++at_;
      bool is_set = false;
      BATON_TRY_ASSIGN(const std::string text, class_escape(is_set));
      flat += text;
      after_single = !is_set;
      continue;
    }
    const Utf8Step step = decode_utf8(pattern_.substr(at_));
    at_ += step.size;
    flat += fmt::format("\\x{{{:x}}}", step.code_point);
    after_single = true;
  }
  --class_depth_;
  if (intersection.empty() && nested.empty()) return (negated ? "[^" : "[") + flat + "]";
  const std::string set = "(?:" + intersection + operand() + ")";
  return negated ? "(?:(?!" + set + ")[\\x{0}-\\x{10ffff}])" : set;
}

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) {
  // Found at every place of a long run of spaces that no line end follows, this is quadratic. A match never starts
  // behind another space: the longer one would have been found first.
  if (pattern == "\\s+$") return fmt::format("(?<![{0}])[{0}]+$", kSpace);
  return Translator(pattern).run();
}

}  // namespace baton::text
