// UTF-8, normal forms and regular expressions against CPython and Oniguruma (tools/goldens/unicode_regex_goldens.py).
#include <gtest/gtest.h>

#include "text/tokenizer/regex.h"
#include "text/tokenizer/regex_translate.h"
#include "text/tokenizer/test_support.h"
#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

using nlohmann::json;

TEST(Unicode, ReplacesInvalidUtf8AsCPython) {
  for (const json& row : read_json(tokenizer_data("unicode.json"))["replace"]) {
    EXPECT_EQ(replace_invalid_utf8(from_base64(row[0].get<std::string>())), row[1].get<std::string>()) << row.dump();
  }
}

TEST(Unicode, NormalFormsAndLowerCaseAsCPython) {
  const std::pair<const char*, NormalForm> forms[] = {
      {"NFC", NormalForm::kNfc}, {"NFD", NormalForm::kNfd}, {"NFKC", NormalForm::kNfkc}, {"NFKD", NormalForm::kNfkd}};
  for (const json& row : read_json(tokenizer_data("unicode.json"))["forms"]) {
    const std::string text = row["text"];
    for (const auto& [name, form] : forms)
      EXPECT_EQ(normalize_unicode(text, form), row.value(name, text)) << row.dump();
    EXPECT_EQ(lower_case(text), row.value("lower", text)) << row.dump();
  }
}

TEST(Unicode, LongRunsOfMarksAreLinear) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i) text += i % 2 ? "\xCC\xA3" : "\xCC\x87";  // classes 220 and 230 in turn
  const double start = cpu_seconds();
  const std::string out = normalize_unicode(text, NormalForm::kNfc);
  EXPECT_LT(cpu_seconds() - start, 1.0 * kSlowdown);
  EXPECT_TRUE(out.starts_with("\xE1\xBA\xA1")) << "a with dot below composes first";
}

TEST(Unicode, ByteAlphabetIsABijection) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    append_utf8(byte_to_alphabet(static_cast<uint8_t>(byte)), spelling);
    EXPECT_EQ(alphabet_to_bytes(spelling), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(alphabet_to_bytes(" "), std::nullopt);
}

std::vector<size_t> cut(const Regex& regex, const std::string& text) {
  std::vector<size_t> ends;
  SearchBudget budget(text.size());
  size_t at = 0;
  const auto end_at = [&](size_t end) {
    if (end > at) ends.push_back(at = end);
  };
  EXPECT_TRUE(regex.each_match(text, budget, [&](Regex::Match match) {
    end_at(match.begin);
    end_at(match.end);
  }));
  end_at(text.size());
  return ends;
}

TEST(Regex, CutsAsOniguruma) {
  const json golden = read_json(tokenizer_data("regex.json"));
  int supported = 0;
  for (const json& row : golden["rows"]) {
    const std::string pattern = row["pattern"];
    const auto regex = Regex::compile(pattern);
    if (row.contains("error")) continue;  // what that engine refuses may mean something here
    if (!regex) {
      EXPECT_EQ(regex.error().code(), Code::kUnimplemented) << regex.error().to_string();
      continue;
    }
    ++supported;
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const std::string text = golden["texts"][i];
      if (text.empty()) continue;
      const auto expected = row["cuts"].value(std::to_string(i), std::vector<size_t>{text.size()});
      EXPECT_EQ(cut(*regex, text), expected) << pattern << " on " << json(text).dump();
    }
  }
  EXPECT_GE(supported, 100);
}

TEST(Regex, RefusesWhatItCantBeSureOf) {
  for (const char* pattern : {"(*LIMIT_MATCH=9)a", "(?{code})", "a{2,3}+", "\\Qa\\E", "[[:alpha:]]", "(?(1)a|b)",
                              "(?P<x>a)", "\\xff", "(?s).", "\\C", "\\g<1>", "[\\xff]", "(?~ab)"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code(), Code::kUnimplemented) << regex.error().to_string();
  }
  for (const char* pattern :
       {"(", "[a", "a)", "\\", "[b-a]", "\\p{Nonsense}", "*", "\\u12", "\xff", "\\x{110000}", "(?<=a+)"}) {
    EXPECT_FALSE(Regex::compile(pattern)) << pattern;
  }
  EXPECT_FALSE(Regex::compile(std::string(200, '(') + std::string(200, ')')));
  EXPECT_FALSE(Regex::compile(std::string(100'000, 'a')));
  EXPECT_FALSE(Regex::compile(std::string(60, '[')));
}

TEST(Regex, HostilePatternsEnd) {
  const std::string text = std::string(1 << 16, 'a');
  for (const char* pattern : {"(a+)+$x", "(?:a|aa)+b", ".*x", "(.*)(.*)(.*)(.*)x", "(?:a*)*b", "(a|b|ab)*c"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex) << pattern;
    const double start = cpu_seconds();
    SearchBudget budget(text.size());
    regex->each_match(text, budget, [](Regex::Match) {});
    EXPECT_LT(cpu_seconds() - start, 5.0 * kSlowdown) << pattern;
  }
}

// The JIT's stack is too small for this form on a long run; the interpreter takes over.
TEST(Regex, LongGroupRunsMatchWhole) {
  const auto regex = Regex::compile(R"([\p{L}&&[^\p{Han}]]+)");
  ASSERT_TRUE(regex);
  const std::string text(1'000'000, 'a');
  EXPECT_EQ(cut(*regex, text), std::vector<size_t>{text.size()});
}

}  // namespace
}  // namespace baton::text
