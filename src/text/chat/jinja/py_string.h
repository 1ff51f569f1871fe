// Python's str methods on UTF-8. Positions and counts are code points; a byte that is no UTF-8 counts as one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::text::jinja {

// Bytes of the code point at `at` (1..4), and the code point itself; a bad byte is its own value.
struct CodePoint {
  char32_t value;
  size_t bytes;
};
CodePoint code_point_at(std::string_view text, size_t at);
void append_utf8(std::string& out, char32_t code_point);
size_t code_point_count(std::string_view text);
std::vector<std::string_view> code_points(std::string_view text);
// Byte offset of code point `index`, at most text.size().
size_t byte_offset(std::string_view text, size_t index);

bool is_space(char32_t c);
bool is_printable(char32_t c);
enum class CharClass { kAlpha, kDecimal, kDigit, kNumeric, kUpper, kLower, kTitle, kCased };
bool has_class(char32_t c, CharClass wanted);

struct StripSides {
  bool left = true;
  bool right = true;
};
// Without `characters`: white space.
std::string_view strip(std::string_view text, std::optional<std::string_view> characters, StripSides sides = {});
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title()
std::string swap_case(std::string_view text);
std::string escape_html(std::string_view text);  // & < > ' "

// max_splits < 0: no limit. Without a separator: runs of white space.
std::vector<std::string_view> split_space(std::string_view text, int64_t max_splits);
std::vector<std::string_view> rsplit_space(std::string_view text, int64_t max_splits);
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t max_splits);
std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator, int64_t max_splits);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// The first byte position of needle at or after `from`; npos if none. Linear time.
size_t find_from(std::string_view text, std::string_view needle, size_t from);
// max_count < 0: all. Overlong results are the caller's to refuse beforehand (count_of).
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t max_count);
size_t count_of(std::string_view text, std::string_view needle);

void append_string_repr(std::string& out, std::string_view text);

}  // namespace baton::text::jinja
