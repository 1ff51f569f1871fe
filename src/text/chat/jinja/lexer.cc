#include "text/chat/jinja/lexer.h"

#include <array>
#include <optional>
#include <utility>

#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/string_literal.h"

namespace baton::text::jinja {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

constexpr std::array<std::string_view, 28> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*",
                                                         "%",  "~",  "[",  "]",  "(",  ")",  "{", "}", ">", "<",
                                                         "=",  ".",  ":",  "|",  ",",  ";",  "",  ""};

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) BATON_TRY(lex_root());
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag { kVariable, kBlock, kComment, kRaw };

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Moves on and counts lines. Also notes whether the eaten text ended a line, which lstrip_blocks wants to know.
  void advance(size_t bytes) {
    for (size_t i = at_; i < at_ + bytes; ++i) line_ += source_[i] == '\n';
    at_ += bytes;
  }

  bool looking_at(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }

  size_t space_bytes(size_t from) const {
    std::string_view rest = std::string_view(source_).substr(from);
    return rest.size() - strip(rest, std::nullopt, {.left = true, .right = false}).size();
  }

  // Bytes of `{% raw %}` (from after the opening sign) if that is what stands at `from`; 0 if not.
  size_t keyword_tag_bytes(size_t from, std::string_view keyword, bool trim_newline, bool allow_plus) const {
    size_t at = from + space_bytes(from);
    if (source_.compare(at, keyword.size(), keyword) != 0) return 0;
    at += keyword.size();
    at += space_bytes(at);
    if (source_.compare(at, 3, "-%}") == 0) return at + 3 + space_bytes(at + 3) - from;
    if (allow_plus && source_.compare(at, 3, "+%}") == 0) return at + 3 - from;
    if (source_.compare(at, 2, "%}") != 0) return 0;
    at += 2;
    if (trim_newline && at < source_.size() && source_[at] == '\n') ++at;
    return at - from;
  }

  std::optional<std::pair<size_t, Tag>> find_tag() const {
    for (size_t at = source_.find('{', at_); at != std::string::npos; at = source_.find('{', at + 1)) {
      if (at + 1 >= source_.size()) break;
      if (source_[at + 1] == '{') return std::pair(at, Tag::kVariable);
      if (source_[at + 1] == '#') return std::pair(at, Tag::kComment);
      if (source_[at + 1] == '%') {
        size_t sign = at + 2 < source_.size() && (source_[at + 2] == '-' || source_[at + 2] == '+') ? 1 : 0;
        return std::pair(at, keyword_tag_bytes(at + 2 + sign, "raw", false, false) > 0 ? Tag::kRaw : Tag::kBlock);
      }
    }
    return std::nullopt;
  }

  // What of `text`, which stands before a tag, is kept.
  std::string_view before_tag(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip(text, std::nullopt, {.left = false, .right = true});
    if (sign == '+' || is_variable) return text;
    size_t newline = text.rfind('\n');
    size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !line_starting_) return text;
    bool only_space = strip(text.substr(line_start), std::nullopt).empty();
    return only_space ? text.substr(0, line_start) : text;
  }

  Result<void> lex_root() {
    auto found = find_tag();
    if (!found) {
      push(TokenKind::kData, source_.substr(at_));
      advance(source_.size() - at_);
      return {};
    }
    auto [tag_at, tag] = *found;
    char sign = tag_at + 2 < source_.size() ? source_[tag_at + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    std::string_view text = std::string_view(source_).substr(at_, tag_at - at_);
    std::string_view kept = before_tag(text, sign, tag == Tag::kVariable);
    if (!kept.empty()) push(TokenKind::kData, std::string(kept));
    advance(text.size() + 2 + (sign != '\0' ? 1 : 0));
    line_starting_ = false;
    switch (tag) {
      case Tag::kComment:
        return lex_comment();
      case Tag::kRaw:
        return lex_raw();
      case Tag::kVariable:
        push(TokenKind::kVariableBegin, "{{");
        return lex_code(Tag::kVariable);
      case Tag::kBlock:
        push(TokenKind::kBlockBegin, "{%");
        return lex_code(Tag::kBlock);
    }
    return {};
  }

  Result<void> lex_comment() {
    size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return fail(Code::kInvalidArgument, "line {}: Missing end of comment tag", line_);
    char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    finish_tag(sign);
    return {};
  }

  // After "%}" or "#}" whose preceding character was `sign`: eats what - and trim_blocks say.
  void finish_tag(char sign) {
    size_t eaten = 0;
    if (sign == '-') {
      eaten = space_bytes(at_);
    } else if (sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      eaten = 1;
    }
    advance(eaten);
    line_starting_ = eaten > 0 && source_[at_ - 1] == '\n';
  }

  Result<void> lex_raw() {
    advance(keyword_tag_bytes(at_, "raw", false, false));
    line_starting_ = source_[at_ - 1] == '\n';
    for (size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 2)) {
      size_t sign_bytes = open + 2 < source_.size() && (source_[open + 2] == '-' || source_[open + 2] == '+') ? 1 : 0;
      size_t bytes = keyword_tag_bytes(open + 2 + sign_bytes, "endraw", true, true);
      if (bytes == 0) continue;
      std::string_view text = std::string_view(source_).substr(at_, open - at_);
      std::string_view kept = before_tag(text, sign_bytes == 1 ? source_[open + 2] : '\0', false);
      if (!kept.empty()) push(TokenKind::kData, std::string(kept));
      advance(open + 2 + sign_bytes + bytes - at_);
      line_starting_ = source_[at_ - 1] == '\n';
      return {};
    }
    return fail(Code::kInvalidArgument, "line {}: Missing end of raw directive", line_);
  }

  // True once the end of the tag has been eaten.
  bool lex_tag_end(Tag tag) {
    std::string_view close = tag == Tag::kVariable ? "}}" : "%}";
    char sign = source_[at_];
    bool signed_end = (sign == '-' || (sign == '+' && tag == Tag::kBlock)) && source_.compare(at_ + 1, 2, close) == 0;
    if (!signed_end && !looking_at(close)) return false;
    push(tag == Tag::kVariable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, std::string(close));
    advance(signed_end ? 3 : 2);
    if (tag == Tag::kBlock || signed_end) {
      finish_tag(signed_end ? sign : '\0');
    } else {
      line_starting_ = false;
    }
    return true;
  }

  Result<void> lex_code(Tag tag) {
    int open_line = line_;
    brackets_.clear();
    while (at_ < source_.size()) {
      if (brackets_.empty() && lex_tag_end(tag)) return {};
      if (size_t space = space_bytes(at_); space > 0) {
        advance(space);
        continue;
      }
      BATON_TRY(lex_token());
    }
    return fail(Code::kInvalidArgument, "line {}: unexpected end of template in the tag opened on line {}", line_,
                open_line);
  }

  Result<void> lex_token() {
    char c = source_[at_];
    if (is_digit(c)) return lex_number();
    if (is_name_start(c) || static_cast<unsigned char>(c) >= 0x80) return lex_name();
    if (c == '\'' || c == '"') return lex_string(c);
    return lex_operator();
  }

  size_t digits_end(size_t from, std::string_view set) const {
    size_t at = from;
    while (at < source_.size() && (set.find(source_[at]) != std::string_view::npos ||
                                   (source_[at] == '_' && at > from && at + 1 < source_.size() &&
                                    set.find(source_[at + 1]) != std::string_view::npos))) {
      ++at;
    }
    return at;
  }

  void push_number(TokenKind kind, size_t end) {
    std::string text;
    for (char c : source_.substr(at_, end - at_)) {
      if (c != '_') text += c;
    }
    push(kind, std::move(text));
    advance(end - at_);
  }

  Result<void> lex_number() {
    static constexpr std::string_view kDecimal = "0123456789";
    char second = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
      std::string_view set = second == 'x' ? "0123456789abcdefABCDEF" : (second == 'o' ? "01234567" : "01");
      size_t end = digits_end(at_ + 2, set);
      if (end > at_ + 2) {
        push_number(TokenKind::kInteger, end);
        return {};
      }
    }
    size_t end = digits_end(at_, kDecimal);
    bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    size_t fraction = end;
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      fraction = digits_end(end + 1, kDecimal);
    }
    size_t exponent = fraction;
    if (!after_dot && fraction < source_.size() && (source_[fraction] | 0x20) == 'e') {
      size_t digits = fraction + 1;
      if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
      if (digits < source_.size() && is_digit(source_[digits])) exponent = digits_end(digits, kDecimal);
    }
    push_number(exponent > end ? TokenKind::kFloat : TokenKind::kInteger, exponent);
    return {};
  }

  Result<void> lex_name() {
    size_t end = at_;
    while (end < source_.size()) {
      CodePoint point = code_point_at(source_, end);
      bool ascii_name = point.value < 0x80 && (is_name_start(source_[end]) || is_digit(source_[end]));
      bool letter =
          point.bytes > 1 && (has_class(point.value, CharClass::kAlpha) || has_class(point.value, CharClass::kNumeric));
      if (!ascii_name && !letter) break;
      end += point.bytes;
    }
    if (end == at_) return lex_operator();
    push(TokenKind::kName, source_.substr(at_, end - at_));
    advance(end - at_);
    return {};
  }

  Result<void> lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      return fail(Code::kInvalidArgument, "line {}: unexpected char {} (a string that is not closed)", line_, quote);
    }
    auto text = unescape_literal(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (!text) return fail(text.error().with_context(fmt::format("line {}", line_)));
    push(TokenKind::kString, std::move(*text));
    advance(end + 1 - at_);
    return {};
  }

  Result<void> lex_operator() {
    for (std::string_view op : kOperators) {
      if (op.empty() || !looking_at(op)) continue;
      BATON_TRY(balance(op[0]));
      push(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return {};
    }
    std::string shown;
    append_string_repr(shown, std::string_view(source_).substr(at_, code_point_at(source_, at_).bytes));
    return fail(Code::kInvalidArgument, "line {}: unexpected char {} at {}", line_, shown, at_);
  }

  Result<void> balance(char c) {
    if (c == '(' || c == '[' || c == '{') {
      brackets_ += c == '(' ? ')' : (c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) return fail(Code::kInvalidArgument, "line {}: unexpected '{}'", line_, c);
      if (brackets_.back() != c) {
        return fail(Code::kInvalidArgument, "line {}: unexpected '{}', expected '{}'", line_, c, brackets_.back());
      }
      brackets_.pop_back();
    }
    return {};
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closers that are due
  std::vector<Token> tokens_;
};

// \r\n and \r become \n; one newline at the very end goes.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(normalize(source)).run(); }

}  // namespace baton::text::jinja
