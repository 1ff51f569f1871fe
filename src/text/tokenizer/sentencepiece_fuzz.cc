// Any bytes as tokenizer.model. Seeds: tests/data/tokenizers/sp_*/tokenizer.model.
#include <cstdint>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::text;
  const auto made = make_sentencepiece_tokenizer({reinterpret_cast<const char*>(data), size}, "");
  if (!made) return 0;
  const auto ids = (*made)->encode("Hello  world 123 <s> \xFF 你好", {});
  decode(**made, ids, false);
  return 0;
}
