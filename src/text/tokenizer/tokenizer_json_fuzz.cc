// Any bytes as tokenizer.json: the first line is the file, the rest is text that the tokenizer it makes then encodes
// and decodes. Seeds: tests/data/tokenizers/*/tokenizer.json.
#include <cstdint>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer/hf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  const std::string_view file = input.substr(0, line);
  const std::string_view text = line == std::string_view::npos ? "Hello 123 é 你好 \xFF" : input.substr(line + 1);
  const auto made = make_hf_tokenizer(file, "");
  if (!made) return 0;
  for (const bool special : {false, true}) {
    const auto ids = (*made)->encode(text, {.add_special_tokens = special, .parse_special_tokens = special});
    Detokenizer detokenizer(**made, special);
    std::string out;
    for (const auto id : ids) out += detokenizer.push(id);
    out += detokenizer.finish();
    if (out != decode(**made, ids, special)) __builtin_trap();
  }
  return 0;
}
