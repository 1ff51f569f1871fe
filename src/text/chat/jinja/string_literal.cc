#include "text/chat/jinja/string_literal.h"

#include <cstdint>

#include "text/chat/jinja/py_string.h"

namespace baton::text::jinja {

namespace {

std::string_view simple_escape(char c) {
  switch (c) {
    case '\n':
      return std::string_view("", 0);
    case '\\':
      return "\\";
    case '\'':
      return "'";
    case '"':
      return "\"";
    case 'a':
      return "\a";
    case 'b':
      return "\b";
    case 'f':
      return "\f";
    case 'n':
      return "\n";
    case 'r':
      return "\r";
    case 't':
      return "\t";
    case 'v':
      return "\v";
    default:
      return {};
  }
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

struct DigitRun {
  int base;
  size_t digits_min;
  size_t digits_max;
};

// Reads digits at `at` and moves past them.
Result<uint32_t> read_digits(std::string_view body, size_t& at, DigitRun run) {
  uint32_t value = 0;
  size_t count = 0;
  for (; count < run.digits_max && at < body.size() && digit_value(body[at]) < run.base; ++count, ++at) {
    value = value * static_cast<uint32_t>(run.base) + static_cast<uint32_t>(digit_value(body[at]));
  }
  if (count < run.digits_min) return fail(Code::kInvalidArgument, "truncated escape in a string literal");
  if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
    return fail(Code::kInvalidArgument, "an escape in a string literal is no Unicode character: {:#x}", value);
  }
  return value;
}

}  // namespace

Result<std::string> unescape_literal(std::string_view body) {
  std::string out;
  out.reserve(body.size());
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\' || at + 1 >= body.size()) {
      out += body[at++];
      continue;
    }
    char c = body[at + 1];
    at += 2;
    DigitRun run{};
    if (c == 'x') run = {16, 2, 2};
    if (c == 'u') run = {16, 4, 4};
    if (c == 'U') run = {16, 8, 8};
    if (c >= '0' && c <= '7') {
      run = {8, 1, 3};
      --at;
    }
    if (c == 'N') return fail(Code::kInvalidArgument, "\\N{{...}} in a string literal is not supported; write \\uXXXX");
    if (run.base != 0) {
      BATON_TRY_ASSIGN(uint32_t value, read_digits(body, at, run));
      append_utf8(out, value);
      continue;
    }
    std::string_view plain = simple_escape(c);
    if (plain.data() == nullptr) {
      out += '\\';
      out += c;
    } else {
      out += plain;
    }
  }
  return out;
}

}  // namespace baton::text::jinja
