#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace baton::text {
namespace {

constexpr int kAlphabetEnd = 324;  // one past the last code point of GPT-2's alphabet

struct ByteAlphabet {
  std::array<uint16_t, 256> of_byte{};
  std::array<int16_t, kAlphabetEnd> to_byte{};
  ByteAlphabet() {
    to_byte.fill(-1);
    uint16_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      of_byte[byte] = printable ? static_cast<uint16_t>(byte) : next++;
      to_byte[of_byte[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

utf8proc_category_t category(int32_t code_point) {
  return static_cast<utf8proc_category_t>(utf8proc_get_property(code_point)->category);
}

// Marks of unequal class are sorted stably between starters; utf8proc's own sort is quadratic on long runs.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto combining = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  std::vector<std::tuple<int, size_t, utf8proc_int32_t>> keyed;  // class, place, mark
  for (size_t begin = 0; begin < code_points.size();) {
    if (combining(code_points[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < code_points.size() && combining(code_points[end]) != 0) ++end;
    keyed.clear();
    for (size_t at = begin; at < end; ++at) keyed.push_back({combining(code_points[at]), at, code_points[at]});
    std::sort(keyed.begin(), keyed.end());
    for (size_t at = begin; at < end; ++at) code_points[at] = std::get<2>(keyed[at - begin]);
    begin = end;
  }
}

}  // namespace

Utf8Step decode_utf8(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return {first, 1, false};
  if (first < 0xC2 || first > 0xF4) return {-1, 1, false};
  const uint32_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  int32_t code_point = first & (0x7F >> size);
  for (uint32_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {-1, i, true};
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1) {
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (at(i) < low || at(i) > high) return {-1, i, false};
    code_point = code_point << 6 | (at(i) & 0x3F);
  }
  return {code_point, size, false};
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | c >> 12));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | c >> 18));
    out.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

bool is_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (static_cast<uint8_t>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = decode_utf8(bytes.substr(at));
    if (step.code_point < 0) break;
    at += step.size;
  }
  return at;
}

bool is_valid_utf8(std::string_view bytes) { return valid_utf8_prefix(bytes) == bytes.size(); }

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t good = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    out.append(kReplacement);
    bytes.remove_prefix(decode_utf8(bytes).size);
  }
  return out;
}

bool is_white_space(int32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(int32_t c) {
  if (c < 0) return false;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_numeric(int32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(int32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

char32_t byte_to_alphabet(uint8_t byte) { return byte_alphabet().of_byte[byte]; }

std::optional<std::string> alphabet_to_bytes(std::string_view spelling) {
  std::string out;
  out.reserve(spelling.size());
  while (!spelling.empty()) {
    const Utf8Step step = decode_utf8(spelling);
    if (step.code_point < 0 || step.code_point >= kAlphabetEnd) return std::nullopt;
    const int16_t byte = byte_alphabet().to_byte[static_cast<size_t>(step.code_point)];
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    spelling.remove_prefix(step.size);
  }
  return out;
}

std::string normalize_unicode(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto decompose_options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = decode_utf8(text);
    text.remove_prefix(step.size);
    if (step.code_point >= 0 && step.code_point < 0x80) {
      code_points.push_back(step.code_point);
      continue;
    }
    const int32_t c = step.code_point < 0 ? 0xFFFD : step.code_point;
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(c, parts, 32, decompose_options, &boundary);
    if (count < 0 || count > 32) {
      code_points.push_back(c);
    } else {
      code_points.insert(code_points.end(), parts, parts + count);
    }
  }
  order_marks(code_points);
  if (compose) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    const auto count =
        utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), options);
    if (count >= 0) code_points.resize(static_cast<size_t>(count));
  }
  std::string out;
  out.reserve(code_points.size() * 3);
  for (const auto c : code_points) append_utf8(static_cast<char32_t>(c), out);
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = decode_utf8(text);
    text.remove_prefix(step.size);
    if (step.code_point == 0x130) {  // the one character whose lower case is two
      out += "i\xCC\x87";
    } else {
      append_utf8(step.code_point < 0 ? U'\uFFFD' : static_cast<char32_t>(utf8proc_tolower(step.code_point)), out);
    }
  }
  return out;
}

}  // namespace baton::text
