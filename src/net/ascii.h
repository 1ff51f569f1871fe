// Character classes of HTTP and comparison without case. Pure; locale never matters.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace baton::net {

constexpr char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

constexpr bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (to_lower(a[i]) != to_lower(b[i])) return false;
  return true;
}

// RFC 9110 tchar.
constexpr std::array<bool, 256> kTokenChars = [] {
  std::array<bool, 256> table{};
  for (char c : std::string_view("!#$%&'*+-.^_`|~0123456789"
                                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    table[static_cast<unsigned char>(c)] = true;
  return table;
}();
constexpr bool is_token_char(char c) { return kTokenChars[static_cast<unsigned char>(c)]; }
constexpr bool is_token(std::string_view text) {
  for (char c : text)
    if (!is_token_char(c)) return false;
  return !text.empty();
}

// RFC 9110 field-value: tab, visible ASCII, space, obs-text. No other control character.
constexpr bool is_field_value(std::string_view text) {
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if ((u < 0x20 && u != '\t') || u == 0x7f) return false;
  }
  return true;
}

constexpr std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Nothing when an escape is broken.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);

}  // namespace baton::net
