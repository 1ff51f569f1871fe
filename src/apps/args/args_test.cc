// The grammar must read what vLLM reads: each case is a command line, and what it must come to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/args/arg_grammar.h"
#include "apps/args/arg_values.h"
#include "apps/args/args_check.h"
#include "apps/args/resolve_model.h"

namespace baton::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json load(const std::string& name) {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/data/cli/" + name);
  return json::parse(file);
}

// Compares JSON flags as JSON, so that member order does not matter.
void expect_value(const std::string& flag, const std::string& got, const json& wanted, const std::string& where) {
  if (wanted.is_string())
    EXPECT_EQ(got, wanted.get<std::string>()) << where << " " << flag;
  else
    EXPECT_EQ(json::parse(got), wanted) << where << " " << flag;
}

TEST(ArgGrammar, CasesComeToWhatVllmMakesOfThem) {
  const json cases = load("grammar.json");
  ASSERT_GT(cases.size(), 30u);
  for (const auto& item : cases) {
    const auto arguments = item["args"].get<std::vector<std::string>>();
    const std::string where = item["args"].dump();
    const auto parsed = parse_arguments(arguments);
    if (item.contains("error")) {
      ASSERT_FALSE(parsed.has_value()) << where;
      EXPECT_THAT(parsed.error().message(), HasSubstr(item["error"].get<std::string>())) << where;
      continue;
    }
    ASSERT_TRUE(parsed.has_value()) << where << parsed.error().message();
    if (item.contains("model")) EXPECT_EQ(parsed->model, item["model"].get<std::string>()) << where;
    for (const auto& [flag, wanted] : item["values"].items()) {
      ASSERT_TRUE(parsed->has(flag)) << where << " " << flag;
      if (wanted.is_array() && find_flag(flag)->kind != FlagKind::kJson) {
        EXPECT_EQ(json(parsed->values.find(flag)->second), wanted) << where;
      } else {
        expect_value(flag, parsed->value(flag), wanted, where);
      }
    }
  }
}

TEST(ArgGrammar, EverySeedCommandLineIsUnderstoodOrRefusedWithAReason) {
  const json seeds = load("seeds.json")["cases"];
  ASSERT_GE(seeds.size(), 20u);
  for (const auto& seed : seeds) {
    auto arguments = seed["argv"].get<std::vector<std::string>>();
    ASSERT_EQ(arguments.front(), "serve");
    arguments.erase(arguments.begin());
    const auto parsed = parse_arguments(arguments);
    ASSERT_TRUE(parsed.has_value()) << seed["name"] << parsed.error().message();
    EXPECT_TRUE(parsed->model.has_value()) << seed["name"];
    const auto checked = check_arguments(*parsed);
    if (checked) continue;
    EXPECT_EQ(checked.error().code(), Code::kUnimplemented) << checked.error().message();
    EXPECT_THAT(checked.error().message(), HasSubstr("not in this version")) << seed["name"];
  }
}

TEST(ArgsCheck, RefusalsListEverythingAndHarmlessValuesPass) {
  const std::vector<std::string> bad{
      "m", "--data-parallel-backend", "ray", "--speculative-config", "{\"method\":\"mtp\"}", "--seed", "1"};
  const auto refused = check_arguments(*parse_arguments(bad));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("--data-parallel-backend ray"));
  EXPECT_THAT(refused.error().message(), HasSubstr("--speculative-config"));
  const std::vector<std::string> good{
      "m", "-tp", "4", "--enforce-eager", "--additional-config", R"({"enable_mlapo":true,"strange":1})"};
  const auto report = check_arguments(*parse_arguments(good));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->inert.size(), 2u);
  EXPECT_EQ(report->warnings.size(), 1u);
}

TEST(ArgsCheck, ValuesOfTheWrongTypeAreNamed) {
  for (const auto& [flag, value] :
       std::vector<std::pair<std::string, std::string>>{{"--port", "x"},
                                                        {"--max-model-len", "1.5K"},
                                                        {"--gpu-memory-utilization", "high"},
                                                        {"--kv-transfer-config", "{"},
                                                        {"--kv-transfer-config", R"({"kv_rolle":"kv_both"})"}}) {
    const std::vector<std::string> arguments{"m", flag, value};
    const auto checked = check_arguments(*parse_arguments(arguments));
    ASSERT_FALSE(checked.has_value()) << flag;
    EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(checked.error().message(), HasSubstr(flag)) << flag;
  }
}

TEST(ArgValues, HumanReadableIntegers) {
  EXPECT_EQ(parse_human_int("32k"), 32000);
  EXPECT_EQ(parse_human_int("32K"), 32768);
  EXPECT_EQ(parse_human_int("1.5m"), 1500000);
  EXPECT_EQ(parse_human_int("2G"), int64_t{2} << 30);
  EXPECT_EQ(parse_human_int("-1"), -1);
  EXPECT_EQ(parse_human_int("auto"), -1);
  for (const char* bad : {"", "k", "1.5K", "1e3", "0x10", "12kk", "999999999999T"}) {
    EXPECT_EQ(parse_human_int(bad), std::nullopt) << bad;
  }
}

TEST(ResolveModel, FindsCachesAndListsWhereItLooked) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / "baton_resolve_model_test";
  fs::remove_all(root);
  const fs::path snapshot = root / "hub/models--Eco-Tech--Kimi/snapshots/abc";
  fs::create_directories(snapshot);
  fs::create_directories(root / "hub/models--Eco-Tech--Kimi/refs");
  std::ofstream(root / "hub/models--Eco-Tech--Kimi/refs/main") << "abc";
  std::ofstream(snapshot / "config.json") << "{}";
  fs::create_directories(root / "ms/hub/models/A/B___5");
  std::ofstream(root / "ms/hub/models/A/B___5/config.json") << "{}";
  const auto environment = [&](const char* name) -> std::string {
    if (std::string_view(name) == "HF_HUB_CACHE") return (root / "hub").string();
    if (std::string_view(name) == "MODELSCOPE_CACHE") return (root / "ms").string();
    return "";
  };
  EXPECT_EQ(resolve_model("Eco-Tech/Kimi", environment).value(), snapshot.string());
  EXPECT_EQ(resolve_model("A/B.5", environment).value(), (root / "ms/hub/models/A/B___5").string());
  const auto missing = resolve_model("no/model", environment);
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("models--no--model"));
  EXPECT_FALSE(resolve_model("../../etc", environment).has_value());
  EXPECT_FALSE(resolve_model(root.string(), environment).has_value());
  fs::remove_all(root);
}

TEST(Help, ListsByWord) {
  EXPECT_THAT(help_text("kv-cache"), HasSubstr("--kv-cache-dtype"));
  EXPECT_THAT(help_text("kv-cache"), ::testing::Not(HasSubstr("--ssl-keyfile")));
  for (const auto& flag : serve_flags()) EXPECT_THAT(help_text("all"), HasSubstr(std::string(flag.name)));
}

}  // namespace
}  // namespace baton::apps
