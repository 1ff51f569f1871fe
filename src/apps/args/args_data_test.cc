// Command lines as data (tests/data/cli): every guide's `vllm serve` line is understood, and the grammar is vLLM's.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/args/arg_grammar.h"
#include "apps/args/args_check.h"

namespace baton::apps {
namespace {

using nlohmann::json;

json read_cases(const char* name) {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/data/cli/" + name);
  json document = json::parse(file, nullptr, false);
  return document.is_object() ? document["cases"] : json::array();
}

std::vector<std::string> arguments_of(const json& one) {
  if (one.contains("argv")) return one["argv"].get<std::vector<std::string>>();
  std::vector<std::string> arguments;
  for (const auto& hex : one["argv_hex"]) {
    std::string bytes;
    const auto text = hex.get<std::string>();
    for (size_t i = 0; i + 1 < text.size(); i += 2)
      bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    arguments.push_back(bytes);
  }
  return arguments;
}

TEST(CommandLines, EveryGuideIsAcceptedOrRefusedByNameNeverUnknown) {
  const json cases = read_cases("seeds.json");
  ASSERT_EQ(cases.size(), 25u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    std::vector<std::string> arguments = arguments_of(one);
    ASSERT_EQ(arguments.front(), "serve");
    arguments.erase(arguments.begin());
    const auto parsed = parse_arguments(arguments);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
    EXPECT_TRUE(parsed->model.has_value());
    const auto report = check_arguments(*parsed);
    // These guides ask for speculation and a pool: a refusal says which flags, and nothing is a wrong value.
    if (!report) {
      EXPECT_EQ(report.error().code(), Code::kUnimplemented) << report.error().message();
      EXPECT_NE(report.error().message().find("--"), std::string::npos) << report.error().message();
    }
  }
}

TEST(CommandLines, GrammarIsVllms) {
  const json cases = read_cases("command_lines.json");
  ASSERT_GE(cases.size(), 30u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto parsed = parse_arguments(arguments_of(one));
    if (one.contains("survives")) continue;
    if (one.contains("error")) {
      EXPECT_FALSE(parsed.has_value());
      if (parsed) continue;
      EXPECT_NE(parsed.error().message().find(one["error"].get<std::string>()), std::string::npos)
          << parsed.error().message();
      continue;
    }
    EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
    if (!parsed) continue;
    EXPECT_EQ(parsed->model.value_or(""), one.value("model", "m"));
    for (const auto& [name, values] : one.value("values", json::object()).items()) {
      EXPECT_EQ(json(parsed->values.contains(name) ? parsed->values.at(name) : std::vector<std::string>()), values)
          << name;
    }
    for (const auto& [name, value] : one.value("json", json::object()).items()) {
      EXPECT_EQ(json::parse(parsed->value(name), nullptr, false), value) << name << " " << parsed->value(name);
    }
  }
}

}  // namespace
}  // namespace baton::apps
