// Every malformed field is refused with its name; what is silent takes the documented default.
#include "server/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "server/testing/byte_tokenizer.h"

namespace baton::server {
namespace {

using ::testing::HasSubstr;

Parsed<CommonFields> parse(const Json& body, const SamplingDefaults& defaults = {}) {
  const testing::ByteTokenizer tokenizer;
  RequestLimits limits;
  limits.vocab_size = 258;
  return parse_common(body, defaults, limits, tokenizer);
}

TEST(RequestFields, DefaultsAreVllms) {
  const auto fields = parse(Json::object());
  ASSERT_TRUE(fields.has_value());
  EXPECT_EQ(fields->sampling.temperature, 1);
  EXPECT_EQ(fields->sampling.top_p, 1);
  EXPECT_EQ(fields->sampling.top_k, 0);
  EXPECT_EQ(fields->n, 1);
  EXPECT_TRUE(fields->skip_special_tokens);
  EXPECT_FALSE(fields->sampling.seed.has_value());
}

TEST(RequestFields, TheRequestBeatsTheGenerationConfig) {
  const auto defaults =
      SamplingDefaults::from_generation_config({{"temperature", 0.6}, {"top_p", 0.9}, {"top_k", 20}}).value();
  const auto fields = parse({{"temperature", 0.2}, {"top_p", nullptr}}, defaults);
  ASSERT_TRUE(fields.has_value());
  EXPECT_FLOAT_EQ(fields->sampling.temperature, 0.2f);
  EXPECT_FLOAT_EQ(fields->sampling.top_p, 0.9f);
  EXPECT_EQ(fields->sampling.top_k, 20);
}

TEST(RequestFields, AGenerationConfigThatNoRequestCouldAskForIsRefusedByName) {
  const auto error_of = [](nlohmann::json config) {
    const auto defaults = SamplingDefaults::from_generation_config(config);
    return defaults ? std::string("read") : defaults.error().message();
  };
  EXPECT_EQ(error_of({{"temperature", 0}, {"top_p", 1}, {"top_k", nullptr}, {"pad_token_id", "x"}}), "read");
  EXPECT_THAT(error_of({{"temperature", "hot"}}), HasSubstr("temperature must be a number from 0, not \"hot\""));
  EXPECT_THAT(error_of({{"temperature", 1e300}}), HasSubstr("temperature"));
  EXPECT_THAT(error_of({{"top_p", 0}}), HasSubstr("top_p must be a number above 0, at most 1, not 0"));
  EXPECT_THAT(error_of({{"min_p", -0.1}}), HasSubstr("min_p"));
  EXPECT_THAT(error_of({{"repetition_penalty", 0}}), HasSubstr("repetition_penalty must be a number above 0, not 0"));
  EXPECT_THAT(error_of({{"top_k", -2}}), HasSubstr("top_k must be an integer from -1 to 2147483647, not -2"));
  EXPECT_THAT(error_of({{"max_new_tokens", 18446744073709551615u}}), HasSubstr("max_new_tokens"));
  EXPECT_THAT(error_of(nlohmann::json::array({1})), HasSubstr("must be a JSON object, not array"));
}

TEST(RequestFields, MalformedCasesAreRefusedByName) {
  std::ifstream file(BATON_SOURCE_DIR "/tests/data/api/bad_fields.json");
  const auto cases = Json::parse(file);
  ASSERT_GT(cases.size(), 20u);
  for (const auto& bad : cases) {
    const auto fields = parse(bad["body"]);
    ASSERT_FALSE(fields.has_value()) << bad.dump();
    EXPECT_EQ(fields.error().status, bad.value("status", 400)) << bad.dump();
    EXPECT_EQ(fields.error().param, bad["param"].get<std::string>()) << bad.dump();
    EXPECT_THAT(fields.error().message, HasSubstr(bad.value("message", ""))) << bad.dump();
  }
}

TEST(RequestFields, BadWordsAreListedWithAndWithoutASpace) {
  const auto fields = parse({{"bad_words", {"no"}}});
  ASSERT_TRUE(fields.has_value());
  EXPECT_THAT(fields->sampling.bad_words,
              ::testing::ElementsAre(std::vector<TokenId>{'n', 'o'}, std::vector<TokenId>{' ', 'n', 'o'}));
}

TEST(RequestFields, BodiesThatAreNotObjectsAreRefused) {
  for (const char* text : {"", "[", "[]", "1", "{\"a\":}", "{\"a\":\"\xff\"}", "\x00{}"}) {
    EXPECT_FALSE(parse_body(text).has_value()) << text;
  }
  std::string deep(100000, '[');
  EXPECT_THAT(parse_body("{\"a\":" + deep).error().message, HasSubstr("deeper"));
  EXPECT_TRUE(parse_body(R"({"a": "[[[[\"[["})").has_value());
}

TEST(RequestFields, AHugeSeedKeepsItsBits) {
  EXPECT_EQ(parse({{"seed", INT64_MAX}})->sampling.seed, static_cast<uint64_t>(INT64_MAX));
  EXPECT_EQ(parse({{"seed", -1}})->sampling.seed, UINT64_MAX);
  EXPECT_FALSE(parse({{"seed", UINT64_MAX}}).has_value());
}

}  // namespace
}  // namespace baton::server
