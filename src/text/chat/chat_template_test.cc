// Chat templates against Jinja2 itself: tests/data/chat_templates holds what PyPI jinja2, set up as transformers sets
// it up, made of each template (tools/goldens/chat_templates.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "text/chat/render_options.h"

namespace baton::text {
namespace {

using nlohmann::ordered_json;

std::vector<ordered_json> read_cases() {
  std::vector<ordered_json> cases;
  std::filesystem::path folder = std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/chat_templates";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    ordered_json document = ordered_json::parse(file);
    for (auto& one : document["cases"]) cases.push_back(std::move(one));
  }
  return cases;
}

RenderOptions golden_options() {
  RenderOptions options;
  options.now = 1'753'000'000;  // the generator's frozen clock, UTC
  return options;
}

Result<std::string> render(std::string_view source, const ordered_json& variables, const RenderOptions& options) {
  BATON_TRY_ASSIGN(auto parsed, parse_chat_template(source, options));
  return parsed->render(variables);
}

Result<std::string> render(std::string_view source) { return render(source, ordered_json::object(), golden_options()); }

TEST(ChatTemplate, RendersAsJinja2DoesWithTransformersSettings) {
  setenv("TZ", "UTC", 1);
  std::vector<ordered_json> cases = read_cases();
  ASSERT_GE(cases.size(), 250u);
  for (const ordered_json& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    auto result = render(one["template"].get<std::string>(), one["variables"], golden_options());
    if (one.contains("expected")) {
      ASSERT_TRUE(result.has_value() || ::testing::Test::HasFailure()) << result.error().message();
      if (result) EXPECT_EQ(*result, one["expected"].get<std::string>());
    } else {
      EXPECT_FALSE(result.has_value()) << "rendered: " << result.value_or("");
      if (result) continue;
      EXPECT_NE(result.error().message().find(one["error"].get<std::string>()), std::string::npos)
          << result.error().message();
    }
  }
}

TEST(ChatTemplate, RaiseExceptionKeepsItsWords) {
  auto result = render("{{ raise_exception('Only user and assistant roles!') }}");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message(), "Only user and assistant roles!");
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
}

TEST(ChatTemplate, OtherErrorsNameTheLine) {
  auto result = render("a\nb\n{{ nothing.here }}");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message(), "chat template, line 3: 'nothing' is undefined");
}

TEST(ChatTemplate, UnknownNamesFailAtParseTimeWithTheLine) {
  for (auto [source, words] : std::vector<std::pair<std::string, std::string>>{
           {"\n{{ x|wat }}", "chat template: line 2: No filter named 'wat'."},
           {"\n\n{{ x is wat }}", "chat template: line 3: No test named 'wat'."},
           {"{% wat %}", "chat template: line 1: Encountered unknown tag 'wat'."}}) {
    auto result = parse_chat_template(source);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().message(), words);
  }
}

TEST(ChatTemplate, EndlessWorkIsCutOff) {
  RenderOptions options;
  options.limits.steps_max = 100'000;
  options.limits.text_bytes_max = 1 << 20;
  options.limits.bytes_made_max = 8 << 20;
  for (std::string source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{{ 'a' * 1000000000 }}",
           "{{ 'a' * 1000000 * 1000 }}",
           "{{ [0] * 1000000000 }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
           "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
           "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
           "{{ 2 ** 100 }}",
           "{{ '%9999999d' % 1 }}",
           "{{ 'x'.ljust(99999999999) }}",
           "{{ ('a'*100000)|replace('a', 'b'*100000) }}",
           "{{ 'x\n'|indent(999999999) }}",
           // Values that hold one another twice, 60 deep: 2^60 steps to compare, to hash or to sort.
           "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
           "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
           "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
           "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
           "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
           "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ [ns.a, ns.b]|unique|list|length }}",
           "{% set ns = namespace(a=(1,)) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}"
           "{{ {ns.a: 1} }}",
           "{% set x = 'a' * 1000000 %}{% set y = 'a' * 1000000 %}"
           "{% for i in range(20000) %}{% if x == y %}{% endif %}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(20000) %}{% if x|length %}{% endif %}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(20000) %}{% if x.startswith(x) %}{% endif %}{% endfor %}",
       }) {
    auto result = render(source, ordered_json::object(), options);
    EXPECT_FALSE(result.has_value()) << source;
  }
}

// The expected texts are PyPI jinja2 3.1.6's.
TEST(ChatTemplate, NumbersAtTheEndsOf64Bits) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{{ range(-9000000000000000000, 9000000000000000000, 6000000000000000000)|list }}",
            "[-9000000000000000000, -3000000000000000000, 3000000000000000000]"},
           {"{{ range(-9000000000000000000, 9000000000000000000, 6000000000000000000)[::-1]|list }}",
            "[3000000000000000000, -3000000000000000000, -9000000000000000000]"},
           {"{{ 'x'.zfill(-9223372036854775807 - 1) }}", "x"},
           {"{{ 'x'.center(-9223372036854775807 - 1) }}", "x"},
           {"{{ 'x'.ljust(-9223372036854775807 - 1) }}", "x"},
           {"{{ 2.5|round(-9223372036854775807 - 1) }}", "0.0"}}) {
    const auto result = render(source);
    ASSERT_TRUE(result.has_value()) << source << ": " << result.error().message();
    EXPECT_EQ(*result, expected) << source;
  }
  // Python's integers go on; ours end with an error.
  EXPECT_FALSE(render("{{ 9223372036854775807|round(-1) }}").has_value());
}

TEST(ChatTemplate, DeepNestingIsRefusedNotCrashed) {
  std::string parentheses = "{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}";
  std::string minus = "{{ " + std::string(100'000, '-') + "1 }}";
  std::string sum = "{{ 1";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  sum += " }}";
  std::string nested_ifs;
  for (int i = 0; i < 10'000; ++i) nested_ifs += "{% if 1 %}";
  for (const std::string& source : {parentheses, minus, sum, nested_ifs}) {
    EXPECT_FALSE(parse_chat_template(source).has_value());
  }
  ordered_json deep = 1;
  for (int i = 0; i < 5'000; ++i) deep = ordered_json::array({std::move(deep)});
  EXPECT_FALSE(render("{{ x }}", {{"x", deep}}, golden_options()).has_value());
}

TEST(ChatTemplate, VariablesAreFew) {
  ordered_json many = ordered_json::object();
  for (size_t i = 0; i <= ChatTemplate::kVariablesMax; ++i) many[fmt::format("v{}", i)] = 1;
  EXPECT_FALSE(render("x", many, golden_options()).has_value());
  many.erase("v0");
  EXPECT_EQ(render("{{ v1 }}", many, golden_options()).value(), "1");
}

TEST(ChatTemplate, LoopAndMacroValuesMayOutliveTheirBlocks) {
  auto result = render(
      "{% set ns = namespace() %}{% for i in [1, 2] %}{% set y = i * 10 %}{% macro m() %}{{ y }}{% endmacro %}"
      "{% set ns.m = m %}{% set ns.l = loop %}{% endfor %}{{ ns.m() }} {{ ns.l.index }} {{ ns.l.length }}");
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(*result, "20 2 2");
}

TEST(ChatTemplate, ManyThreadsMayRenderOneTemplate) {
  // Rendering changes nothing in the parsed template: the same object gives the same text again.
  auto parsed = parse_chat_template("{% for m in messages %}{{ m.role }}{% endfor %}");
  ASSERT_TRUE(parsed.has_value());
  ordered_json variables = {{"messages", {{{"role", "user"}}, {{"role", "tool"}}}}};
  EXPECT_EQ((*parsed)->render(variables).value(), "usertool");
  EXPECT_EQ((*parsed)->render(variables).value(), "usertool");
}

}  // namespace
}  // namespace baton::text
