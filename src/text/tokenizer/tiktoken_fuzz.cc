// Any bytes as tiktoken.model. Up to the first empty line they are the file, with the 256 bytes put before it if the
// first character is '+'; the rest is text that the tokenizer it makes encodes and decodes.
#include <cstdint>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer/kimi_tokenizer.h"

namespace {

std::string byte_lines() {
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (int byte = 0; byte < 256; ++byte) {
    out += kAlphabet[byte >> 2];
    out += kAlphabet[(byte & 3) << 4];
    out += "== " + std::to_string(byte) + "\n";
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::text;
  static const std::string kBytes = byte_lines();
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string file;
  if (input.starts_with('+')) {
    file = kBytes;
    input.remove_prefix(1);
  }
  const size_t end = input.find("\n\n");
  file += input.substr(0, end);
  const std::string_view text = end == std::string_view::npos ? "Hello 123 é 你好 \xFF" : input.substr(end + 2);
  const auto made = make_kimi_tokenizer(file, "");
  if (!made) return 0;
  for (const bool special : {false, true}) {
    const auto ids = (*made)->encode(text, {.parse_special_tokens = special});
    std::string bytes;
    Detokenizer detokenizer(**made, false);
    std::string out;
    for (const auto id : ids) {
      bytes += (*made)->token_bytes(id);
      out += detokenizer.push(id);
    }
    out += detokenizer.finish();
    if (bytes != text || out != decode(**made, ids, false)) __builtin_trap();
  }
  return 0;
}
