#include "text/chat/jinja/format_spec.h"

#include <cmath>

#include "text/chat/jinja/py_string.h"

namespace baton::text::jinja {

namespace {

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

std::string group_digits(std::string digits, char group) {
  size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (size_t at = end; at > 3;) {
    at -= 3;
    digits.insert(at, 1, group);
  }
  return digits;
}

std::string integer_digits(uint64_t magnitude, const FormatSpec& spec) {
  switch (spec.type) {
    case 'x':
      return fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
    case 'X':
      return fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
    case 'o':
      return fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
    case 'b':
      return fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string float_digits(double magnitude, const FormatSpec& spec) {
  bool upper_case = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    std::string_view text = std::isnan(magnitude) ? "nan" : "inf";
    return upper_case ? upper(text) : std::string(text);
  }
  int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", magnitude, precision);
    case 'g':
      return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'G':
      return fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default:
      return spec.precision < 0 ? float_text(magnitude) : fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
  }
}

}  // namespace

std::string pad_field(std::string text, const FormatSpec& spec, bool numeric) {
  size_t length = code_point_count(text);
  auto width = static_cast<size_t>(std::max(spec.width, 0));
  if (length >= width) return text;
  size_t missing = width - length;
  char align = spec.align != '\0' ? spec.align : (numeric ? '>' : '<');
  size_t before = align == '>' || align == '=' ? missing : (align == '^' ? missing / 2 : 0);
  std::string left;
  std::string right;
  for (size_t i = 0; i < before; ++i) left += spec.fill;
  for (size_t i = before; i < missing; ++i) right += spec.fill;
  if (align == '=' && !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ')) {
    return text.substr(0, 1) + left + text.substr(1);
  }
  return left + text + right;
}

Result<std::string> format_number(const Value& value, const FormatSpec& spec) {
  static constexpr std::string_view kInteger = "diuxXobc";
  static constexpr std::string_view kFloat = "eEfFgG%";
  if (!value.is_number()) {
    return fail(Code::kInvalidArgument, "%{} format: a real number is required, not {}", spec.type, type_name(value));
  }
  bool wants_integer = kInteger.find(spec.type) != std::string_view::npos && spec.type != '\0';
  bool wants_float = kFloat.find(spec.type) != std::string_view::npos && spec.type != '\0';
  if (spec.type != '\0' && !wants_integer && !wants_float) {
    return fail(Code::kInvalidArgument, "Unknown format code '{}' for object of type '{}'", spec.type,
                type_name(value));
  }
  std::string text;
  bool negative = false;
  if (value.is_integral() && !wants_float) {
    negative = value.as_int() < 0;
    uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value.as_int()) : static_cast<uint64_t>(value.as_int());
    if (spec.type == 'c') {
      if (negative || magnitude > 0x10ffff) return fail(Code::kInvalidArgument, "%c arg not in range(0x110000)");
      append_utf8(text, static_cast<char32_t>(magnitude));
      return pad_field(std::move(text), spec, false);
    }
    text = integer_digits(magnitude, spec);
  } else {
    negative = std::signbit(value.as_double());
    text = float_digits(std::fabs(value.as_double()), spec);
  }
  if (spec.group != '\0') text = group_digits(std::move(text), spec.group);
  if (negative) {
    text.insert(0, 1, '-');
  } else if (spec.sign != '\0' && spec.sign != '-') {
    text.insert(0, 1, spec.sign);
  }
  return pad_field(std::move(text), spec, true);
}

Result<FormatSpec> parse_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  size_t fill_bytes = text.empty() ? 0 : code_point_at(text, 0).bytes;
  if (fill_bytes > 0 && text.size() > fill_bytes && is_align(text[fill_bytes])) {
    spec.fill = text.substr(0, fill_bytes);
    spec.align = text[fill_bytes];
    at = fill_bytes + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  auto number = [&]() -> int {
    int value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min(value * 10 + (text[at++] - '0'), kFormatWidthMax + 1);
    return value;
  };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    ++at;
    if (spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = number();
  if (peek() == ',' || peek() == '_') spec.group = text[at++];
  if (peek() == '.') {
    ++at;
    spec.precision = number();
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return fail(Code::kInvalidArgument, "Invalid format specifier '{}'", text);
  if (spec.width > kFormatWidthMax || spec.precision > kFormatWidthMax) {
    return fail(Code::kOutOfRange, "a format field wider than {}", kFormatWidthMax);
  }
  return spec;
}

}  // namespace baton::text::jinja
