#include "text/chat/jinja/py_string.h"

#include <fmt/format.h>
#include <string.h>  // memmem
#include <utf8proc.h>

#include <algorithm>

namespace baton::text::jinja {

CodePoint code_point_at(std::string_view text, size_t at) {
  auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  utf8proc_int32_t value = 0;
  auto left = static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4));
  utf8proc_ssize_t used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at, left, &value);
  if (used <= 0) return {lead, 1};
  return {static_cast<char32_t>(value), static_cast<size_t>(used)};
}

void append_utf8(std::string& out, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t code_point_count(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += code_point_at(text, at).bytes) ++count;
  return count;
}

std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> points;
  for (size_t at = 0; at < text.size(); at += points.back().size()) {
    points.push_back(text.substr(at, code_point_at(text, at).bytes));
  }
  return points;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += code_point_at(text, at).bytes;
  return at;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

bool has_class(char32_t c, CharClass wanted) {
  utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  switch (wanted) {
    case CharClass::kAlpha:
      return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    case CharClass::kDecimal:
      return category == UTF8PROC_CATEGORY_ND;
    case CharClass::kDigit:
      return category == UTF8PROC_CATEGORY_ND || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
             (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
    case CharClass::kNumeric:
      return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
    case CharClass::kUpper:
      return category == UTF8PROC_CATEGORY_LU;
    case CharClass::kLower:
      return category == UTF8PROC_CATEGORY_LL;
    case CharClass::kTitle:
      return category == UTF8PROC_CATEGORY_LT;
    case CharClass::kCased:
      return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
  }
  return false;
}

namespace {

// Case mapping of one code point, with the one expansion that common text has.
void append_upper(std::string& out, char32_t c) {
  if (c == 0xdf) {
    out += "SS";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_lower(std::string& out, char32_t c) {
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (c == 0xdf) {
    out += "Ss";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

// Calls map(out, code point) over valid code points and copies bad bytes.
template <typename Map>
std::string map_code_points(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    if (point.bytes == 1 && point.value >= 0x80) {
      out += text[at];
    } else {
      map(out, point.value);
    }
    at += point.bytes;
  }
  return out;
}

bool in_set(std::string_view point, std::optional<std::string_view> characters) {
  if (!characters) return is_space(code_point_at(point, 0).value);
  return characters->find(point) != std::string_view::npos;
}

size_t start_of_last(std::string_view text) {
  size_t at = text.size() - 1;
  for (int back = 0; back < 3 && at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; ++back) --at;
  return at + code_point_at(text, at).bytes == text.size() ? at : text.size() - 1;
}

}  // namespace

std::string_view strip(std::string_view text, std::optional<std::string_view> characters, StripSides sides) {
  while (sides.left && !text.empty()) {
    size_t bytes = code_point_at(text, 0).bytes;
    if (!in_set(text.substr(0, bytes), characters)) break;
    text.remove_prefix(bytes);
  }
  while (sides.right && !text.empty()) {
    size_t at = start_of_last(text);
    if (!in_set(text.substr(at), characters)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::string upper(std::string_view text) { return map_code_points(text, append_upper); }
std::string lower(std::string_view text) { return map_code_points(text, append_lower); }

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_code_points(text, [&first](std::string& out, char32_t c) {
    if (first) {
      append_title(out, c);
    } else {
      append_lower(out, c);
    }
    first = false;
  });
}

std::string title(std::string_view text) {
  bool in_word = false;
  return map_code_points(text, [&in_word](std::string& out, char32_t c) {
    if (in_word) {
      append_lower(out, c);
    } else {
      append_title(out, c);
    }
    in_word = has_class(c, CharClass::kCased);
  });
}

std::string swap_case(std::string_view text) {
  return map_code_points(text, [](std::string& out, char32_t c) {
    if (has_class(c, CharClass::kUpper)) {
      append_lower(out, c);
    } else {
      append_upper(out, c);
    }
  });
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

size_t find_from(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (needle.size() > text.size() - from) return std::string_view::npos;  // memmem takes no null of an empty text
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return hit == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

size_t count_of(std::string_view text, std::string_view needle) {
  if (needle.empty()) return code_point_count(text) + 1;
  size_t count = 0;
  for (size_t at = find_from(text, needle, 0); at != std::string_view::npos;
       at = find_from(text, needle, at + needle.size())) {
    ++count;
  }
  return count;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t max_count) {
  std::string out;
  size_t at = 0;
  while (max_count != 0) {
    size_t hit = find_from(text, from, at);
    if (hit == std::string_view::npos) break;
    out += text.substr(at, hit - at);
    out += to;
    at = hit + from.size();
    if (max_count > 0) --max_count;
    if (!from.empty()) continue;
    if (at >= text.size()) return out;
    size_t bytes = code_point_at(text, at).bytes;  // between code points
    out += text.substr(at, bytes);
    at += bytes;
  }
  out += text.substr(at);
  return out;
}

void append_string_repr(std::string& out, std::string_view text) {
  bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  char quote = double_quotes ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    char32_t c = point.value;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if ((point.bytes == 1 && c >= 0x80) || (!is_printable(c) && c < 0x100)) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (!is_printable(c)) {
      out += c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                         : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    } else {
      out += text.substr(at, point.bytes);
    }
    at += point.bytes;
  }
  out += quote;
}

}  // namespace baton::text::jinja
