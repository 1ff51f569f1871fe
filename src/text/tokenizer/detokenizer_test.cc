// Half characters, special tokens and the dummy space of SentencePiece in a stream of tokens.
#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

// Tokens are given as bytes; ids from `special_from` on are special.
class ByteTokens final : public Tokenizer {
 public:
  ByteTokens(std::vector<std::string> tokens, TokenId special_from, std::string prefix = "")
      : tokens_(std::move(tokens)), special_from_(special_from), prefix_(std::move(prefix)) {}
  std::vector<TokenId> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::string_view token_bytes(TokenId id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(tokens_[static_cast<size_t>(id)]) : std::string_view();
  }
  bool is_special(TokenId id) const override { return id >= special_from_; }
  std::string_view token_spelling(TokenId id) const override { return token_bytes(id); }
  std::optional<TokenId> token_id(std::string_view) const override { return std::nullopt; }
  int vocab_size() const override { return static_cast<int>(tokens_.size()); }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::vector<TokenId> eos_ids() const override { return {}; }
  std::string_view decode_prefix() const override { return prefix_; }

 private:
  std::vector<std::string> tokens_;
  TokenId special_from_;
  std::string prefix_;
};

std::vector<std::string> parts(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip = false) {
  Detokenizer detokenizer(tokenizer, skip);
  std::vector<std::string> out;
  for (const TokenId id : ids) out.push_back(detokenizer.push(id));
  out.push_back(detokenizer.finish());
  return out;
}

using Parts = std::vector<std::string>;

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  const ByteTokens t({"a", "\xF0", "\x9F\x98", "\x80", "b"}, 99);
  EXPECT_EQ(parts(t, {0, 1, 2, 3, 4}), (Parts{"a", "", "", "😀", "b", ""}));
}

TEST(Detokenizer, ReplacesWhatCanNoLongerBecomeACharacter) {
  const ByteTokens t({"a", "\xF0\x9F", "\x80", "\xFF", "\xE4\xBD"}, 99);
  EXPECT_EQ(parts(t, {1, 0}), (Parts{"", "\uFFFDa", ""}));
  EXPECT_EQ(parts(t, {2, 3}), (Parts{"\uFFFD", "\uFFFD", ""})) << "these are bad at once";
  EXPECT_EQ(parts(t, {0, 4}), (Parts{"a", "", "\uFFFD"})) << "cut at the end";
}

TEST(Detokenizer, SkipsSpecialTokensEvenInsideOfACharacter) {
  const ByteTokens t({"\xC3", "\xA9", "<end>"}, 2);
  EXPECT_EQ(parts(t, {0, 2, 1}, true), (Parts{"", "", "é", ""}));
  EXPECT_EQ(parts(t, {0, 2, 1}, false), (Parts{"", "\uFFFD<end>", "\uFFFD", ""}));
}

TEST(Detokenizer, StripsOneLeadingSpaceOfTheWholeText) {
  const ByteTokens t({" a", " b", "<s>", "", "c"}, 2, " ");
  EXPECT_EQ(parts(t, {0, 1}), (Parts{"a", " b", ""}));
  EXPECT_EQ(parts(t, {2, 0}, true), (Parts{"", "a", ""}));
  EXPECT_EQ(parts(t, {2, 0}, false), (Parts{"<s>", " a", ""}));
  EXPECT_EQ(parts(t, {4, 0}), (Parts{"c", " a", ""}));
}

TEST(Detokenizer, IdsOutsideOfTheVocabularyAreEmpty) {
  const ByteTokens t({"a"}, 99);
  EXPECT_EQ(parts(t, {-1, 0, 1, 1 << 30}), (Parts{"", "a", "", "", ""}));
}

TEST(Detokenizer, StreamsWhatDecodeGivesForAnyBytes) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"é", "\xE4\xBD", "\xA0", "\xF0\x9F", "\x98\x80", "  ", "<x>"}) tokens.emplace_back(text);
  const ByteTokens t(tokens, 262, " ");
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids(random() % 12);
    std::string bytes;
    for (TokenId& id : ids) {
      id = random() % 3 == 0 ? static_cast<TokenId>(256 + random() % 7) : static_cast<TokenId>(random() % 256);
      bytes += t.token_bytes(id);
    }
    if (bytes.starts_with(" ")) bytes.erase(0, 1);
    std::string joined;
    for (const std::string& part : parts(t, ids)) {
      EXPECT_TRUE(is_valid_utf8(part));
      joined += part;
    }
    EXPECT_EQ(joined, replace_invalid_utf8(bytes));
    EXPECT_EQ(decode(t, ids, false), joined);
  }
}

}  // namespace
}  // namespace baton::text
