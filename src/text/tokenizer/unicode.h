// UTF-8 and the few Unicode facts a tokenizer needs. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton::text {

// One step of decoding at the start of `bytes`.
struct Utf8Step {
  int32_t code_point;  // -1 where the bytes are not a character
  uint32_t size;       // bytes of the character; of a bad sequence, the maximal part that one U+FFFD replaces
  bool cut;            // the bytes end inside what could still become a character
};
// `bytes` must not be empty. Follows Unicode's "maximal subpart" practice, as CPython and Rust do.
Utf8Step decode_utf8(std::string_view bytes);

void append_utf8(char32_t code_point, std::string& out);
bool is_valid_utf8(std::string_view bytes);
// Length of the longest valid prefix.
size_t valid_utf8_prefix(std::string_view bytes);
// Every bad sequence becomes U+FFFD, as bytes.decode("utf-8", errors="replace") does.
std::string replace_invalid_utf8(std::string_view bytes);
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_ascii(std::string_view bytes);
// Unicode White_Space, which is `\s` of the regex dialects that tokenizer files use.
bool is_white_space(int32_t code_point);
// Letters, marks, decimal digits and connectors, near enough to `\w` for `single_word` tokens.
bool is_word(int32_t code_point);
bool is_numeric(int32_t code_point);      // general category N*
bool is_punctuation(int32_t code_point);  // ASCII punctuation or general category P*

// GPT-2's printable alphabet for the 256 bytes.
char32_t byte_to_alphabet(uint8_t byte);
// The bytes a spelling stands for; nothing if a character is outside of the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view spelling);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// `text` must be valid UTF-8. Linear in its length, whatever runs of combining marks it holds.
std::string normalize_unicode(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);

}  // namespace baton::text
