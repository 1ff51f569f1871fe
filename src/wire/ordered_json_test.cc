#include "wire/ordered_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

namespace baton::wire {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr int kDepth = 8;

// Sanitizers cost about ten times.
#ifdef BATON_SANITIZED
constexpr double kSlowdown = 15;
#else
constexpr double kSlowdown = 1;
#endif

std::string object_of(int members) {
  std::string text = "{";
  for (int i = 0; i < members; ++i) text += fmt::format("{}\"{}\":{}", i == 0 ? "" : ",", i, i);
  return text + "}";
}

TEST(OrderedJson, ReadsWhatTheLibraryReads) {
  std::string repeated_among_many = object_of(40);
  repeated_among_many.insert(repeated_among_many.size() - 1, R"(,"39":"last","7":[1],"new":{"a":1})");
  for (const std::string& text :
       {std::string(R"({"b":1,"a":[1,-2,3.5,true,false,null,"é\u00e9"],"c":{"z":{},"y":[]},"b":"again"})"),
        std::string("7"), std::string("\"text\""), std::string("[[],{},[[]]]"), std::string("\xEF\xBB\xBF{}"),
        object_of(100), repeated_among_many}) {
    const auto parsed = parse_ordered_json(text, kDepth);
    ASSERT_TRUE(parsed.has_value()) << text << ": " << parsed.error().to_string();
    EXPECT_EQ(parsed->dump(), Json::parse(text).dump());
  }
}

TEST(OrderedJson, ManyMembersTakeLinearTime) {
  const std::string text = object_of(400'000);
  const std::clock_t start = std::clock();
  const auto parsed = parse_ordered_json(text, kDepth);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->size(), 400'000u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 2 * kSlowdown);
}

TEST(OrderedJson, RefusesWithTheReason) {
  for (const auto& [text, says] :
       std::vector<std::pair<std::string, std::string>>{{"", "not valid JSON"},
                                                        {"{", "not valid JSON"},
                                                        {"{} x", "not valid JSON"},
                                                        {"[1e999]", "not valid JSON"},
                                                        {"\"\xff\"", "not valid JSON"},
                                                        {"{\"a\":01}", "column"},
                                                        {std::string(9, '[') + std::string(9, ']'), "deeper than 8"},
                                                        {std::string(1'000'000, '['), "deeper than 8"},
                                                        {R"({"a":)" + std::string(100, '{'), "not valid JSON"}}) {
    const auto parsed = parse_ordered_json(text, kDepth);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message(), HasSubstr(says));
  }
  EXPECT_TRUE(parse_ordered_json(std::string(8, '[') + std::string(8, ']'), kDepth).has_value());
  EXPECT_EQ(parse_ordered_json(object_of(1'100'000), kDepth).error().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace baton::wire
