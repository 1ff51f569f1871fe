#include "text/tokenizer/tiktoken_file.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <cstdint>
#include <optional>
#include <unordered_set>

namespace baton::text {
namespace {

constexpr std::array<int8_t, 256> make_base64_values() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  const char* alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int8_t i = 0; i < 64; ++i) values[static_cast<uint8_t>(alphabet[i])] = i;
  return values;
}
constexpr std::array<int8_t, 256> kBase64 = make_base64_values();

// Padded, and with zeros in the bits that padding leaves over.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int8_t value = kBase64[static_cast<uint8_t>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  if ((bits & ((1u << count) - 1)) != 0) return std::nullopt;
  return out;
}

std::optional<uint32_t> parse_rank(std::string_view text) {
  uint32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return rank;
}

// `lines`: of the whole file. A rank beyond them is a hole that can't be filled, so that memory stays bounded by the
// file.
Result<void> parse_line(std::string_view line, size_t number, size_t lines, std::vector<std::string>& tokens) {
  const size_t space = line.find(' ');
  const auto rank = space == std::string_view::npos ? std::nullopt : parse_rank(line.substr(space + 1));
  if (!rank) return fail(Code::kInvalidArgument, "line {}: not \"BASE64 RANK\"", number);
  if (*rank >= kTiktokenRanksMax) {
    return fail(Code::kInvalidArgument, "line {}: rank {}: at most {} ranks are read", number, *rank,
                kTiktokenRanksMax);
  }
  if (*rank >= lines) {
    return fail(Code::kInvalidArgument, "line {}: rank {} in a file of {} lines", number, *rank, lines);
  }
  if (space > kTiktokenTokenBytesMax / 3 * 4 + 4) {
    return fail(Code::kInvalidArgument, "line {}: a token of more than {} bytes", number, kTiktokenTokenBytesMax);
  }
  auto token = decode_base64(line.substr(0, space));
  if (!token || token->empty()) return fail(Code::kInvalidArgument, "line {}: the token is not base64", number);
  if (*rank >= tokens.size()) tokens.resize(*rank + 1);
  if (!tokens[*rank].empty()) return fail(Code::kInvalidArgument, "line {}: rank {} is given twice", number, *rank);
  tokens[*rank] = std::move(*token);
  return {};
}

Result<void> check_tokens(const std::vector<std::string>& tokens) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(tokens.size());
  std::bitset<256> bytes;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string& token = tokens[rank];
    if (token.empty()) return fail(Code::kInvalidArgument, "rank {} of {} has no token", rank, tokens.size());
    if (!seen.insert(token).second) return fail(Code::kInvalidArgument, "rank {} has a token that was there", rank);
    if (token.size() == 1) bytes.set(static_cast<uint8_t>(token[0]));
  }
  if (!bytes.all()) return fail(Code::kInvalidArgument, "{} of the 256 bytes have a token: all must", bytes.count());
  return {};
}

}  // namespace

Result<std::vector<std::string>> parse_tiktoken_file(std::string_view text) {
  const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  std::vector<std::string> tokens;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) BATON_TRY(parse_line(line, number, lines, tokens));
  }
  BATON_TRY(check_tokens(tokens));
  return tokens;
}

}  // namespace baton::text
