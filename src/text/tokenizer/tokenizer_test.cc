// What files may ask for and what is refused, long and hostile texts, and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <thread>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer/hf_tokenizer.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"
#include "text/tokenizer/test_support.h"

namespace baton::text {
namespace {

using nlohmann::json;

std::vector<std::string> all_folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(tokenizer_data(""))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

class LongTexts : public testing::TestWithParam<std::string> {};

TEST_P(LongTexts, RunsOfAnythingAreQuick) {
  const auto loaded = load_tokenizer_folder(tokenizer_data(GetParam()));
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  const size_t kBytes = kSlowdown == 1 && (GetParam() == "deepseek_llm" || GetParam() == "llama2") ? 1 << 20 : 1 << 17;
  const std::string texts[] = {
      std::string(kBytes, 'a'),        std::string(kBytes, ' '),         std::string(kBytes, ' ') + "x",
      std::string(kBytes, ' ') + "你", std::string(kBytes, '\n'),        repeated("\r\n", kBytes),
      repeated(" \n", kBytes) + "你",  repeated("好", kBytes),           repeated("ab", kBytes),
      repeated("😀", kBytes),          repeated("e\xCC\x81", kBytes),    std::string(kBytes, '\xFF'),
      repeated("<|im_end|", kBytes),   std::string(kBytes, '<'),         std::string(kBytes, '7'),
      repeated("don't ", kBytes),      std::string(kBytes, '\t') + "好", repeated("\xCC\x87\xCC\xA3", kBytes),
  };
  for (const std::string& text : texts) {
    const double start = cpu_seconds();
    const auto ids = (*loaded)->encode(text, {});
    EXPECT_LT(cpu_seconds() - start, 1.5 * kSlowdown) << GetParam() << ": " << text.substr(text.size() - 8);
    EXPECT_LE(ids.size(), text.size() + 4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LongTexts,
                         testing::Values("gpt2", "llama3", "deepseek_llm", "deepseek_v3", "qwen2", "kimi", "llama2"),
                         [](const auto& info) { return info.param; });

TEST(Tokenizer, ThreadsShareOne) {
  for (const std::string& name : all_folders()) {
    const auto loaded = load_tokenizer_folder(tokenizer_data(name));
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    std::vector<std::string> texts;
    std::vector<std::vector<TokenId>> alone;
    for (const json& one : read_json(tokenizer_data(name + "/golden.json"))["cases"]) {
      texts.push_back(one["text"]);
      alone.push_back((*loaded)->encode(texts.back(), {}));
    }
    std::vector<std::thread> threads;
    std::array<bool, 4> same{};
    for (size_t i = 0; i < same.size(); ++i) {
      threads.emplace_back([&, i] {
        bool equal = true;
        for (size_t at = 0; at < texts.size(); ++at) equal = equal && (*loaded)->encode(texts[at], {}) == alone[at];
        same[i] = equal;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(same, (std::array<bool, 4>{true, true, true, true})) << name;
  }
}

json tiny() {
  return json::parse(R"({"added_tokens":[{"id":5,"content":"<end>","special":true}],"normalizer":null,
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"post_processor":null,
    "decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"abab":4},"merges":["a b",["ab","ab"]]}})");
}

TEST(TokenizerJson, TinyFileWorks) {
  const auto made = make_hf_tokenizer(tiny().dump(), "");
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ((*made)->encode("abab ab<end>b", {}), (std::vector<TokenId>{4, 3, 2, 5, 1}));
  EXPECT_EQ((*made)->vocab_size(), 6);
  EXPECT_TRUE((*made)->is_special(5));
  EXPECT_EQ((*made)->token_id("<end>"), 5);
  EXPECT_EQ((*made)->token_bytes(3), " ");
  EXPECT_EQ((*made)->token_spelling(3), "Ġ");
  EXPECT_EQ((*made)->token_bytes(6), "");
  EXPECT_EQ((*made)->token_bytes(-1), "");
  EXPECT_FALSE((*made)->is_special(6));
}

struct Refusal {
  const char* name;
  std::function<void(json&)> edit;
  Code code;
  const char* says;
};

TEST(TokenizerJson, WhatIsNotSupportedIsNamed) {
  const Refusal refusals[] = {
      {"model", [](json& j) { j["model"]["type"] = "Unigram"; }, Code::kUnimplemented, "Unigram"},
      {"prefix", [](json& j) { j["model"]["continuing_subword_prefix"] = "##"; }, Code::kUnimplemented,
       "continuing_subword_prefix"},
      {"dropout", [](json& j) { j["model"]["dropout"] = 0.1; }, Code::kUnimplemented, "dropout"},
      {"normalizer", [](json& j) { j["normalizer"] = {{"type", "Precompiled"}}; }, Code::kUnimplemented, "Precompiled"},
      {"nested",
       [](json& j) {
         j["normalizer"] =
             json::parse(R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"BertNormalizer"}]})");
       },
       Code::kUnimplemented, "BertNormalizer"},
      {"pre", [](json& j) { j["pre_tokenizer"] = {{"type", "UnicodeScripts"}}; }, Code::kUnimplemented,
       "UnicodeScripts"},
      {"order",
       [](json& j) {
         j["pre_tokenizer"] =
             json::parse(R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})");
       },
       Code::kUnimplemented, "Digits behind ByteLevel"},
      {"regex",
       [](json& j) {
         j["pre_tokenizer"] = json::parse(R"x({"type":"Split","pattern":{"Regex":"(?~a)"},"behavior":"Isolated"})x");
       },
       Code::kUnimplemented, "(?~a)"},
      {"behavior",
       [](json& j) {
         j["pre_tokenizer"] = json::parse(R"({"type":"Split","pattern":{"String":"a"},"behavior":"Sideways"})");
       },
       Code::kUnimplemented, "Sideways"},
      {"decoder", [](json& j) { j["decoder"] = {{"type", "WordPiece"}}; }, Code::kUnimplemented, "WordPiece"},
      {"no decoder", [](json& j) { j["decoder"] = nullptr; }, Code::kUnimplemented, "decoder"},
      {"post", [](json& j) { j["post_processor"] = {{"type", "Other"}}; }, Code::kUnimplemented, "Other"},
      {"merge", [](json& j) { j["model"]["merges"].push_back("b a"); }, Code::kInvalidArgument, "\"ba\""},
      {"merge word", [](json& j) { j["model"]["merges"].push_back("b x"); }, Code::kInvalidArgument, "merge 2"},
      {"merge kind", [](json& j) { j["model"]["merges"].push_back(7); }, Code::kInvalidArgument, "merge 2"},
      {"huge id", [](json& j) { j["model"]["vocab"]["z"] = 1 << 24; }, Code::kInvalidArgument, "\"z\""},
      {"far id", [](json& j) { j["model"]["vocab"]["z"] = 9'000'000; }, Code::kInvalidArgument, "\"z\""},
      {"negative id", [](json& j) { j["model"]["vocab"]["z"] = -1; }, Code::kInvalidArgument, "\"z\""},
      {"float id", [](json& j) { j["model"]["vocab"]["z"] = 1.5; }, Code::kInvalidArgument, "\"z\""},
      {"same id", [](json& j) { j["model"]["vocab"]["z"] = 1; }, Code::kInvalidArgument, "id 1"},
      {"added id", [](json& j) { j["added_tokens"][0]["id"] = 1; }, Code::kInvalidArgument, "<end>"},
      {"added huge", [](json& j) { j["added_tokens"][0]["id"] = 1ull << 63; }, Code::kInvalidArgument, "added token"},
      {"added long", [](json& j) { j["added_tokens"][0]["content"] = std::string(5000, 'x'); }, Code::kInvalidArgument,
       "5000 bytes"},
      {"unk", [](json& j) { j["model"]["unk_token"] = "nope"; }, Code::kInvalidArgument, "nope"},
      {"template",
       [](json& j) {
         j["post_processor"] = json::parse(
             R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{}}],"special_tokens":{}})");
       },
       Code::kInvalidArgument, "\"x\""},
      {"normalizer doubles",
       [](json& j) {
         const auto twice = json::parse(R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})");
         j["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array_t(40, twice)}};
       },
       Code::kOutOfRange, "1024 bytes of one"},
      {"pre_tokenizer doubles",
       [](json& j) {
         const auto twice = json::parse(R"({"type":"Metaspace","replacement":"  ","prepend_scheme":"never"})");
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array_t(40, twice)}};
       },
       Code::kOutOfRange, "1024 bytes of one"},
      {"decoder doubles",
       [](json& j) {
         const auto twice = json::parse(R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})");
         j["decoder"] = {{"type", "Sequence"}, {"decoders", json::array_t(40, twice)}};
       },
       Code::kOutOfRange, "16 bytes of one"},
      {"many steps",
       [](json& j) {
         const json none = {{"type", "Strip"}};
         j["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array_t(65, none)}};
       },
       Code::kOutOfRange, "64 steps"},
  };
  for (const Refusal& one : refusals) {
    json file = tiny();
    one.edit(file);
    const auto made = make_hf_tokenizer(file.dump(), "");
    ASSERT_FALSE(made) << one.name;
    EXPECT_EQ(made.error().code(), one.code) << one.name << ": " << made.error().to_string();
    EXPECT_NE(made.error().message().find(one.says), std::string::npos) << one.name << ": " << made.error().to_string();
  }
  for (const std::string text : {"", "{", "[]", "7", "{\"model\":3}", "\xff"}) {
    EXPECT_FALSE(make_hf_tokenizer(text, "")) << text;
  }
  EXPECT_FALSE(make_hf_tokenizer(std::string(200'000, '['), ""));
  EXPECT_FALSE(make_hf_tokenizer(tiny().dump(), "{"));
}

// transformers' Llama classes put BOS before every text unless add_bos_token says no, whatever tokenizer.json has.
TEST(TokenizerConfig, SaysWhetherBosAndEosAreAdded) {
  json file = tiny();
  file["added_tokens"].push_back({{"id", 6}, {"content", "<bos>"}, {"special", true}});
  file["post_processor"] = json::parse(
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<bos>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
          "special_tokens":{"<bos>":{"id":"<bos>","ids":[6],"tokens":["<bos>"]}}})");
  const auto ids = [&](const std::string& config) {
    const auto made = make_hf_tokenizer(file.dump(), config);
    EXPECT_TRUE(made) << made.error().to_string();
    return (*made)->encode("b", {});
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids(""), (Ids{6, 1}));
  EXPECT_EQ(ids(R"({"bos_token":"<bos>"})"), (Ids{6, 1}));
  EXPECT_EQ(ids(R"({"bos_token":"<bos>","add_bos_token":false})"), (Ids{1}));
  EXPECT_EQ(ids(R"({"bos_token":{"content":"<bos>"},"eos_token":"<end>","add_eos_token":true})"), (Ids{6, 1, 5}));
  file["post_processor"] = nullptr;
  EXPECT_EQ(ids(R"({"bos_token":"<bos>"})"), (Ids{1}));
  EXPECT_EQ(ids(R"({"bos_token":"<bos>","tokenizer_class":"LlamaTokenizerFast"})"), (Ids{6, 1}));
  EXPECT_EQ(ids(R"({"bos_token":"<bos>","tokenizer_class":"LlamaTokenizerFast","add_bos_token":false})"), (Ids{1}));
}

TEST(TokenizerConfig, AddsTokensOfItsOwn) {
  const auto made = make_hf_tokenizer(
      tiny().dump(),
      R"({"eos_token":"<end>","added_tokens_decoder":{"5":{"content":"<end>","special":true},"9":{"content":"<x>","special":false}}})");
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ((*made)->encode("a<x>b", {}), (std::vector<TokenId>{0, 9, 1}));
  EXPECT_EQ((*made)->vocab_size(), 10);
  EXPECT_EQ((*made)->eos_ids(), std::vector<TokenId>{5});
  EXPECT_EQ((*made)->bos_id(), std::nullopt);
}

TEST(GgufTokenizer, RefusesWithTheReason) {
  const auto says = [](const GgufTokenizerData& data, Code code, std::string_view words) {
    const auto made = make_gguf_tokenizer(data);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), code);
    EXPECT_NE(made.error().message().find(words), std::string::npos) << made.error().to_string();
  };
  GgufTokenizerData good{.model = "gpt2", .pre = "smollm", .tokens = {"a", "b", "ab"}, .merges = {"a b"}};
  ASSERT_TRUE(make_gguf_tokenizer(good));
  GgufTokenizerData data = good;
  data.pre = "martian";
  says(data, Code::kUnimplemented, "deepseek-v3");
  data = good;
  data.model = "bert";
  says(data, Code::kUnimplemented, "bert");
  data = good;
  data.tokens.clear();
  says(data, Code::kInvalidArgument, "empty");
  data = good;
  data.token_types = {1};
  says(data, Code::kInvalidArgument, "token_type");
  data = good;
  data.eos_id = 3;
  says(data, Code::kInvalidArgument, "eos");
  data = good;
  data.merges = {"a c"};
  says(data, Code::kInvalidArgument, "a c");
  data = good;
  data.merges = {"b a"};
  says(data, Code::kInvalidArgument, "ba");
  data = good;
  data.model = "llama";
  says(data, Code::kInvalidArgument, "scores");
}

std::string field(int number, std::string_view bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t size = bytes.size();
  for (; size > 0x7F; size >>= 7) out += static_cast<char>(size | 0x80);
  return (out += static_cast<char>(size)).append(bytes);
}

// tokenizer.model with a map from "A" to "b" in place of its own, whose units `edit` may change.
std::string with_character_map(std::function<void(std::vector<uint32_t>&)> edit, std::string_view replacements) {
  std::vector<uint32_t> units(256, 0);
  units['A'] = 1u << 10 | 1u << 8 | 'A';  // ends here, its value is at 'A' ^ 1
  units['A' ^ 1] = 1u << 31;              // byte 0 of the replacements
  edit(units);
  const auto bytes = static_cast<uint32_t>(units.size() * 4);
  std::string map(reinterpret_cast<const char*>(&bytes), 4);
  map.append(reinterpret_cast<const char*>(units.data()), bytes).append(replacements);
  return read_text(tokenizer_data("sp_bpe/tokenizer.model")) + field(3, field(2, map));
}

TEST(SentencePiece, MapsThatLeadOutsideAreRefused) {
  const std::string_view b("b\0", 2);
  const auto made = make_sentencepiece_tokenizer(with_character_map([](auto&) {}, b), "");
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ((*made)->encode("A", {}), (*made)->encode("b", {}));

  for (const auto& [edit, replacements] :
       std::vector<std::pair<std::function<void(std::vector<uint32_t>&)>, std::string_view>>{
           {[](auto& units) { units[0] = 0x7FFFFE00; }, b},       // leads outside
           {[](auto& units) { units[255] = 1u << 10 << 8; }, b},  // one block too far
           {[](auto& units) { units['A' ^ 1] |= 2; }, b},         // no such replacement
           {[](auto& units) { units.resize(200); }, b},           // ends inside of a block
           {[](auto& units) { units.clear(); }, b},
           {[](auto&) {}, ""},
           {[](auto&) {}, "b"}}) {  // without its end
    const auto refused = make_sentencepiece_tokenizer(with_character_map(edit, replacements), "");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_NE(refused.error().message().find("damaged"), std::string::npos) << refused.error().message();
  }
  const std::string whole = with_character_map([](auto&) {}, b);
  for (size_t cut = 1; cut < 900; cut += 7) {
    EXPECT_FALSE(make_sentencepiece_tokenizer(whole.substr(0, whole.size() - cut), ""));
  }
}

TEST(LoadFolder, SaysWhatIsMissing) {
  const auto made = load_tokenizer_folder("/nonexistent/folder");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kNotFound);
  EXPECT_NE(made.error().message().find("tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace baton::text
