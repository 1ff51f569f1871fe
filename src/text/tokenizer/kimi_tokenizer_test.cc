// Kimi's tokenizer against PyPI tiktoken, which defines it (tools/goldens/kimi_tiktoken_goldens.py).
#include "text/tokenizer/kimi_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/hash.h"
#include "text/detokenizer.h"
#include "text/tokenizer/kimi_classes.h"
#include "text/tokenizer/kimi_split.h"
#include "text/tokenizer/test_support.h"
#include "text/tokenizer/tiktoken_file.h"
#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

using nlohmann::json;

constexpr EncodeOptions kPlain{.parse_special_tokens = false};

const json& kimi_json(const std::string& name) {
  static std::map<std::string, json> read;
  if (!read.contains(name)) read[name] = read_json(tokenizer_data("kimi_tiktoken/" + name));
  return read[name];
}

const Tokenizer& small_kimi() {
  static const auto loaded = load_tokenizer_folder(tokenizer_data("kimi_tiktoken"));
  EXPECT_TRUE(loaded) << loaded.error().to_string();
  return **loaded;
}

std::string digest(std::span<const std::byte> bytes) { return to_hex(sha256(bytes)); }

std::string digest_of(const std::vector<TokenId>& ids) {
  std::vector<uint8_t> bytes;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<uint8_t>(id >> shift));
  }
  return digest(std::as_bytes(std::span(bytes)));
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, false);
  std::string out;
  for (const TokenId id : ids) {
    const std::string part = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(part)) << "half a character was emitted";
    out += part;
  }
  return out + detokenizer.finish();
}

void expect_cases(const Tokenizer& tokenizer, const json& golden) {
  ASSERT_GE(golden["cases"].size(), 250u);
  for (const json& one : golden["cases"]) {
    const std::string text = one["text"];
    const std::vector<TokenId> ids = one["ids"], plain = one.value("plain", ids);
    EXPECT_EQ(tokenizer.encode(text, {}), ids) << one.dump();
    EXPECT_EQ(tokenizer.encode(text, kPlain), plain) << one.dump();
    EXPECT_EQ(decode(tokenizer, plain, false), text);
    EXPECT_EQ(stream(tokenizer, plain), text);
  }
  for (const json& one : golden["long"]) {
    std::string text;
    for (const json& part : one["parts"]) {
      for (int i = 0; i < part[1].get<int>(); ++i) text += part[0].get<std::string>();
    }
    const auto ids = tokenizer.encode(text, {}), plain = tokenizer.encode(text, kPlain);
    EXPECT_EQ(ids.size(), one["count"].get<size_t>()) << one.dump();
    EXPECT_EQ(digest_of(ids), one["sha256"].get<std::string>()) << one.dump();
    EXPECT_EQ(plain.size(), one["plain_count"].get<size_t>()) << one.dump();
    EXPECT_EQ(digest_of(plain), one["plain_sha256"].get<std::string>()) << one.dump();
  }
}

TEST(KimiTokenizer, EncodesAndDecodesAsTiktoken) { expect_cases(small_kimi(), kimi_json("golden.json")); }

// With BATON_KIMI=/folder/with/the/published/tiktoken.model (tools/goldens/kimi_ranks.py makes one).
TEST(KimiTokenizer, EncodesThePublishedVocabularyAsTiktoken) {
  const char* folder = std::getenv("BATON_KIMI");
  if (folder == nullptr) GTEST_SKIP() << "BATON_KIMI is not set";
  const std::string ranks = read_text(std::string(folder) + "/tiktoken.model");
  const json golden = read_json(tokenizer_data("kimi_tiktoken/real.json"));
  ASSERT_EQ(digest(std::as_bytes(std::span(ranks))), golden["file_sha256"].get<std::string>());
  // The names of the small vocabulary, at the same places behind the ranks.
  json config = read_json(tokenizer_data("kimi_tiktoken/tokenizer_config.json"));
  json named = json::object();
  for (const auto& [id, token] : config["added_tokens_decoder"].items()) {
    named[std::to_string(std::stoi(id) - kimi_json("golden.json")["ranks"].get<int>() + 163584)] = token;
  }
  config["added_tokens_decoder"] = named;
  const auto made = make_kimi_tokenizer(ranks, config.dump());
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ((*made)->vocab_size(), 163840);
  EXPECT_EQ((*made)->encode("Hello, world! 你好，世界！", {}),
            (std::vector<TokenId>{19180, 11, 2695, 0, 220, 33845, 378, 2243, 856}));
  expect_cases(**made, golden);
}

TEST(KimiTokenizer, KeepsBytesThatAreNotUtf8) {
  for (const json& one : kimi_json("golden.json")["invalid"]) {
    const std::string text = from_base64(one["base64"].get<std::string>());
    const auto ids = small_kimi().encode(text, {});
    EXPECT_EQ(ids, one["ids"].get<std::vector<TokenId>>()) << one.dump();
    EXPECT_EQ(decode(small_kimi(), ids, false), one["decoded"].get<std::string>());
    EXPECT_EQ(stream(small_kimi(), ids), one["decoded"].get<std::string>());
  }
}

// Every character of Unicode, by the classes that tiktoken's engine gives it.
TEST(KimiSplit, ClassesAreThoseOfTiktokensEngine) {
  const json& golden = kimi_json("split.json")["classes"];
  const auto& classes = KimiClasses::get();
  std::map<int, std::vector<uint8_t>> blocks;
  std::vector<uint8_t> all;
  for (int32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    all.push_back(classes.of(c));
    blocks[c >> 12].push_back(classes.of(c));
  }
  EXPECT_EQ(digest(std::as_bytes(std::span(all))), golden["all"].get<std::string>());
  for (const auto& [block, flags] : blocks) {
    EXPECT_EQ(digest(std::as_bytes(std::span(flags))).substr(0, 16),
              golden["by_4096"][fmt::format("{:x}", block)].get<std::string>())
        << fmt::format("U+{:x}000", block);
  }
}

// Every string of up to four characters of each kind, cut as the pattern cuts it.
TEST(KimiSplit, CutsEveryShortStringAsThePattern) {
  const json& golden = kimi_json("split.json");
  const std::vector<std::string> atoms = golden["atoms"];
  const int depth = golden["depth"];
  std::vector<Span> pieces;
  for (const std::string& first : atoms) {
    std::vector<uint8_t> sizes;
    std::vector<std::string> level{first};
    for (int count = 1; count <= depth; ++count) {
      std::vector<std::string> next;
      for (const std::string& text : level) {
        pieces.clear();
        split_kimi(text, pieces);
        for (const Span piece : pieces) sizes.push_back(static_cast<uint8_t>(piece.end - piece.begin));
        sizes.push_back(0);
        if (count == depth) continue;
        for (const std::string& atom : atoms) next.push_back(text + atom);
      }
      level = std::move(next);
    }
    EXPECT_EQ(digest(std::as_bytes(std::span(sizes))), golden["exhaustive"][first].get<std::string>())
        << "strings that start with \"" << first << "\"";
  }
}

TEST(KimiSplit, LongRunsAreLinear) {
  const double start = cpu_seconds();
  for (const char* unit : {"a", " ", "\n", "!", "中", "1", "\xCC\x81", "A'", " \n"}) {
    std::string text;
    while (text.size() < 2'000'000) text += unit;
    std::vector<Span> pieces;
    split_kimi(text, pieces);
    ASSERT_FALSE(pieces.empty());
    EXPECT_EQ(pieces.back().end, text.size());
  }
  EXPECT_LT(cpu_seconds() - start, 3.0 * kSlowdown);
}

TEST(KimiTokenizer, NamesItsSpecialTokens) {
  const Tokenizer& kimi = small_kimi();
  const int ranks = kimi_json("golden.json")["ranks"];
  EXPECT_EQ(kimi.vocab_size(), ranks + 256);
  EXPECT_EQ(kimi.token_id("<|open|>"), ranks + 3);
  EXPECT_EQ(kimi.token_spelling(ranks + 100), fmt::format("<|reserved_token_{}|>", ranks + 100));
  EXPECT_EQ(kimi.bos_id(), ranks);
  EXPECT_EQ(kimi.eos_ids(), std::vector<TokenId>{ranks + 1});
  EXPECT_TRUE(kimi.is_special(ranks + 2)) << "<|end_of_msg|>, by additional_special_tokens";
  EXPECT_FALSE(kimi.is_special(ranks + 3)) << "<|open|> is added, but no attribute names it";
  EXPECT_FALSE(kimi.is_special(ranks + 100));
  EXPECT_EQ(kimi.encode("x", {.add_special_tokens = true}), kimi.encode("x", {.add_special_tokens = false}));
}

std::string byte_lines() {
  std::string out;
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int b = 0; b < 256; ++b) {
    out += {kAlphabet[b >> 2], kAlphabet[(b & 3) << 4]};
    out += fmt::format("== {}\n", b);
  }
  return out;
}

TEST(TiktokenFile, RefusesWhatIsNotAWholeVocabulary) {
  ASSERT_TRUE(parse_tiktoken_file(byte_lines()));
  ASSERT_TRUE(parse_tiktoken_file(byte_lines() + "\r\nYWI= 256\r\n\n"));
  for (const auto& [more, words] : std::vector<std::pair<std::string, std::string>>{
           {"YWI=256\n", "line 257: not \"BASE64 RANK\""},
           {"YWI= 0256\n", "line 257: not"},
           {"YWI= -1\n", "line 257: not"},
           {"YWI= 256 \n", "line 257: not"},
           {"YWI= \n", "line 257: not"},
           {" 256\n", "line 257: the token is not base64"},
           {"YWI 256\n", "line 257: the token is not base64"},
           {"YWJ= 256\n", "line 257: the token is not base64"},
           {"Y!I= 256\n", "line 257: the token is not base64"},
           {"==== 256\n", "line 257: the token is not base64"},
           {"YWI= 255\n", "line 257: rank 255 is given twice"},
           {"YQ== 256\n", "rank 256 has a token that was there"},
           {"YWI= 257\n", "rank 256 of 258 has no token"},
           {"YWI= 99999999\n", "at most 4194304 ranks"},
           {"YWI= 4000000\n", "line 257: rank 4000000 in a file of 258 lines"},
           {"YWI= 99999999999\n", "line 257: not"},
           {std::string(8000, 'A') + " 256\n", "a token of more than 4096 bytes"}}) {
    const auto parsed = parse_tiktoken_file(byte_lines() + more);
    ASSERT_FALSE(parsed) << more;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message().find(words), std::string::npos) << parsed.error().message();
  }
  const auto bytes = parse_tiktoken_file("YQ== 0\n");
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().message(), "1 of the 256 bytes have a token: all must");
  EXPECT_FALSE(parse_tiktoken_file(""));
}

TEST(KimiTokenizer, RefusesAConfigurationThatDoesNotFit) {
  for (const auto& [config, words] : std::vector<std::pair<std::string, std::string>>{
           {R"({"added_tokens_decoder": {"3": {"content": "x"}}})", "added token \"x\" has id 3: with 256 ranks"},
           {R"({"added_tokens_decoder": {"512": {"content": "x"}}})", "from 256 to 511"},
           {R"({"tokenizer_class": "QwenTokenizer"})", "tokenizer_class QwenTokenizer"},
           {R"([)", "tokenizer_config.json"}}) {
    const auto made = make_kimi_tokenizer(byte_lines(), config);
    ASSERT_FALSE(made) << config;
    EXPECT_NE(made.error().message().find(words), std::string::npos) << made.error().message();
  }
}

TEST(KimiTokenizer, FolderWithoutRanksIsRefusedWhereRanksAreAsked) {
  const auto loaded = load_tokenizer_folder(tokenizer_data("gpt2"), TokenizerKind::kKimiTiktoken);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), Code::kNotFound);
  EXPECT_NE(loaded.error().message().find("no tiktoken.model"), std::string::npos);
}

}  // namespace
}  // namespace baton::text
