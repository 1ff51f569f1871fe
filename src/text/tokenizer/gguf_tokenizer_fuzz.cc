// Any strings, scores and types as the tokenizer of a GGUF file. Input: lines; the first two are model and pre, then
// one token a line ("\x01" parts its type and score), an empty line, merges, an empty line, text.
#include <cstdint>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace {

std::string_view take_line(std::string_view& input) {
  const size_t end = input.find('\n');
  const std::string_view line = input.substr(0, end);
  input = end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace baton::text;
  std::string_view input(reinterpret_cast<const char*>(bytes), size);
  GgufTokenizerData data;
  data.model = take_line(input);
  data.pre = take_line(input);
  for (std::string_view line; !(line = take_line(input)).empty();) {
    const size_t mark = line.find('\x01');
    data.tokens.emplace_back(line.substr(0, mark));
    const uint8_t tail = mark == std::string_view::npos || mark + 1 >= line.size() ? 1 : line[mark + 1];
    data.token_types.push_back(tail % 8);
    data.scores.push_back(-static_cast<float>(tail));
  }
  for (std::string_view line; !(line = take_line(input)).empty();) data.merges.emplace_back(line);
  data.unk_id = 0;
  data.bos_id = 1;
  data.eos_id = 2;
  const auto made = make_gguf_tokenizer(data);
  if (!made) return 0;
  const auto ids = (*made)->encode(input, {});
  if (decode(**made, ids, false).size() > 64 * (size + 64) * (size + 64)) __builtin_trap();
  return 0;
}
