// The whole vocabulary of SmolLM2 against llama.cpp (tools/goldens/llama_cpp_tokenizer_goldens.py). Needs the GGUF
// file: BATON_SMOLLM2=/path/to/SmolLM2-135M-Instruct.Q4_1.gguf; skipped without it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "text/tokenizer.h"
#include "text/tokenizer/gguf_for_test.h"
#include "text/tokenizer/test_support.h"

namespace baton::text {
namespace {

TEST(SmolLm2, EncodesAsLlamaCpp) {
  const char* path = std::getenv("BATON_SMOLLM2");
  if (!path || !std::filesystem::exists(path)) GTEST_SKIP() << "BATON_SMOLLM2 names no file";
  const GgufTokenizerData data = GgufForTest::read(path);
  const auto made = make_gguf_tokenizer(data);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ((*made)->vocab_size(), 49152);
  EXPECT_EQ((*made)->eos_ids(), std::vector<TokenId>{2});
  for (const auto& one : read_json(tokenizer_data("smollm2_llama_cpp.json"))["cases"]) {
    const std::string text = one["text"];
    const std::vector<TokenId> ids = one["ids"], plain = one.value("plain", ids), with_bos = one.value("with_bos", ids);
    EXPECT_EQ((*made)->encode(text, {}), with_bos) << one.dump();
    EXPECT_EQ((*made)->encode(text, {.add_special_tokens = false}), ids) << one.dump();
    EXPECT_EQ((*made)->encode(text, {.add_special_tokens = false, .parse_special_tokens = false}), plain) << one.dump();
    EXPECT_EQ(decode(**made, ids, false), text);
  }
}

// llama.cpp's `\s?` takes no Unicode space beyond ASCII before these two; the models' tokenizer.json does.
bool differs_by_design(std::string_view pre, std::string_view text) {
  return (pre == "deepseek-llm" || pre == "deepseek-coder") && text.find("\u202f") != std::string_view::npos;
}

TEST(SmolLm2, EncodesAsLlamaCppWithOtherPreTokenizers) {
  const char* path = std::getenv("BATON_SMOLLM2");
  if (!path || !std::filesystem::exists(path)) GTEST_SKIP() << "BATON_SMOLLM2 names no file";
  GgufTokenizerData data = GgufForTest::read(path);
  const auto golden = read_json(tokenizer_data("smollm2_llama_cpp.json"));
  for (const auto& [pre, rows] : golden["pre"].items()) {
    data.pre = pre;
    const auto made = make_gguf_tokenizer(data);
    ASSERT_TRUE(made) << made.error().to_string();
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string text = golden["cases"][i]["text"];
      if (differs_by_design(pre, text)) continue;
      EXPECT_EQ((*made)->encode(text, {.add_special_tokens = false}), rows[i].get<std::vector<TokenId>>())
          << pre << text;
    }
  }
}

}  // namespace
}  // namespace baton::text
