// Chat formats against what their published definitions make of the same conversations
// (tests/data/chat_formats, tools/goldens/chat_formats.py).
#include "text/chat_format.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "base/hash.h"
#include "text/chat/formats/python_json.h"
#include "text/chat/formats/tool_typescript.h"
#include "text/tokenizer/hf_tokenizer.h"
#include "text/tokenizer/kimi_tokenizer.h"

namespace baton::text {
namespace {

using nlohmann::ordered_json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
std::string data_path(const std::string& name) { return std::string(BATON_SOURCE_DIR) + "/tests/data/" + name; }

const ordered_json& golden(const std::string& name) {
  static std::map<std::string, ordered_json> read;
  if (!read.contains(name)) read[name] = ordered_json::parse(read_file(data_path("chat_formats/" + name)));
  return read[name];
}

const ChatFormat& format_named(const std::string& name) {
  static std::map<std::string, std::unique_ptr<ChatFormat>> made;
  auto& format = made[name];
  if (!format) {
    auto result = make_native_chat_format(name);
    EXPECT_TRUE(result) << result.error().to_string();
    format = std::move(*result);
    EXPECT_EQ(format->name(), name);
  }
  return *format;
}

ordered_json joined(const std::vector<ChatSegment>& segments) {
  ordered_json out = ordered_json::array();
  for (const ChatSegment& segment : segments) {
    EXPECT_FALSE(segment.text.empty());
    if (!out.empty() && out.back()[1] == segment.is_control) {
      out.back()[0] = out.back()[0].get<std::string>() + segment.text;
    } else {
      out.push_back({segment.text, segment.is_control});
    }
  }
  return out;
}

void expect_golden(const std::string& file, size_t at_least) {
  ASSERT_GE(golden(file)["cases"].size(), at_least);
  for (const ordered_json& one : golden(file)["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto made = format_named(one["format"]).render({.variables = one["variables"]});
    if (one.contains("error")) {
      ASSERT_FALSE(made) << join_segments(*made);
      EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
      continue;
    }
    ASSERT_TRUE(made) << made.error().to_string();
    if (one.contains("text")) EXPECT_EQ(join_segments(*made), one["text"].get<std::string>());
    if (one.contains("segments")) EXPECT_EQ(joined(*made).dump(1), one["segments"].dump(1));
  }
}

TEST(ChatFormat, RendersAsThePublishedDefinitions) { expect_golden("formats.json", 90); }
TEST(ChatFormat, RendersAsTmlRenderers) { expect_golden("tml.json", 14); }

TEST(ChatFormat, WritesToolsAsTypeScriptAsThePublishedEncoder) {
  ASSERT_GE(golden("typescript.json")["cases"].size(), 25u);
  for (const ordered_json& one : golden("typescript.json")["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto made = tools_to_typescript(deep_sorted(one["tools"]));
    if (one["typescript"].is_null()) {
      EXPECT_FALSE(made) << *made;
    } else {
      ASSERT_TRUE(made);
      EXPECT_EQ(*made, one["typescript"].get<std::string>());
    }
  }
}

// The example of MoonshotAI/Kimi-K2's docs/tool_call_guidance.md as K2 Instruct's own template renders it (in
// oh-my-pi's description of the format, which was made by running that template).
TEST(ChatFormat, RendersKimiK2InstructsDocumentedExample) {
  const auto variables = ordered_json::parse(R"json({
    "tools": [{"type": "function", "function": {"name": "get_weather",
      "description": "Get weather information. Call this tool when the user needs to get weather information",
      "parameters": {"type": "object", "required": ["city"],
                     "properties": {"city": {"type": "string", "description": "City name"}}}}}],
    "messages": [
      {"role": "user", "content": "What's the weather like in Beijing today? Use the tool to check."},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "functions.get_weather:0", "type": "function",
        "function": {"name": "get_weather", "arguments": "{\"city\": \"Beijing\"}"}}]},
      {"role": "tool", "tool_call_id": "functions.get_weather:0", "name": "get_weather",
       "content": "{\"weather\": \"Sunny\"}"}],
    "add_generation_prompt": true})json");
  const auto made = format_named("kimi_k2").render({.variables = variables});
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(
      join_segments(*made),
      R"(<|im_system|>tool_declare<|im_middle|>[{"type":"function","function":{"name":"get_weather","description":"Get )"
      R"(weather information. Call this tool when the user needs to get weather information","parameters":{"type":)"
      R"("object","required":["city"],"properties":{"city":{"type":"string","description":"City name"}}}}}]<|im_end|>)"
      R"(<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>)"
      R"(<|im_user|>user<|im_middle|>What's the weather like in Beijing today? Use the tool to check.<|im_end|>)"
      R"(<|im_assistant|>assistant<|im_middle|><|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0)"
      R"(<|tool_call_argument_begin|>{"city": "Beijing"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>)"
      "<|im_system|>get_weather<|im_middle|>## Return of functions.get_weather:0\n"
      R"({"weather": "Sunny"}<|im_end|><|im_assistant|>assistant<|im_middle|>)");
}

// With BATON_CHAT_TEMPLATES=/folder/of/the/published/templates (they are not in the repository).
TEST(ChatFormat, RendersPublishedTemplatesAsJinja2) {
  const char* folder = std::getenv("BATON_CHAT_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "BATON_CHAT_TEMPLATES is not set";
  for (const ordered_json& one : golden("templates.json")["templates"]) {
    const std::string source = read_file(std::string(folder) + "/" + one["template"].get<std::string>());
    ASSERT_EQ(to_hex(sha256(std::as_bytes(std::span(source)))), one["sha256"].get<std::string>());
    const auto format = make_jinja_chat_format(source);
    ASSERT_TRUE(format) << format.error().to_string();
    for (const ordered_json& wanted : one["cases"]) {
      SCOPED_TRACE(one["template"].get<std::string>() + ": " + wanted["name"].get<std::string>());
      const auto made = (*format)->render({.variables = wanted["variables"]});
      ASSERT_TRUE(made) << made.error().to_string();
      EXPECT_EQ(join_segments(*made), wanted["expected"].get<std::string>());
    }
  }
}

// gavamedia/deltafin publishes what moonshotai/Kimi-K3's own Python made of four conversations, as FNV-1a digests: of
// the segments (length, control bit) and of the token ids (native/deltafin, its tests of the chat encoder).
struct PublishedK3 {
  const char* variables;
  size_t segments, tokens;
  uint64_t token_digest, segment_digest;
};
const PublishedK3 kPublishedK3[] = {
    {R"({"messages":[{"role":"user","content":"Hello <|open|> & goodbye"}],"add_generation_prompt":true})", 38, 95,
     0x14e384b37a03643f, 0x8d67f74027f3f8f4},
    {R"({"tools":[
          {"type":"function","function":{"description":"B tool","name":"beta","parameters":{"z":{"type":"number"},"a":{"type":"string"}}}},
          {"function":{"name":"alpha","description":"A tool","parameters":{"type":"object"}},"type":"function"}],
        "messages":[
          {"role":"assistant","reasoning_content":"Check.","content":"Calling.","tool_calls":[
            {"id":"b","function":{"name":"beta","arguments":"{\"z\":1,\"a\":\"x\"}"}},
            {"id":"a","function":{"name":"alpha","arguments":"not valid <|open|>"}}]},
          {"role":"tool","tool_call_id":"a","name":"stale","content":"alpha result"},
          {"role":"tool","tool_call_id":"b","tool":"wrong","content":"beta result"}],
        "thinking_effort":"low","add_generation_prompt":true})",
     182, 316, 0x38e754cb40cdd010, 0xb060b0cf4e2a9500},
    {R"({"messages":[{"role":"user","name":"A&B\"","content":"Return JSON."}],"thinking_effort":"high","tool_choice":"required",
        "response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"required":["b","a"],
          "properties":{"b":{"type":"number"},"a":{"type":"string"}},"type":"object"}}},"add_generation_prompt":true})",
     74, 223, 0x597461e6ffe68c32, 0xc65d123d688dd863},
};

template <typename Values>
uint64_t fnv1a(const Values& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint32_t value : values) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (value >> shift & 0xFF)) * 0x100000001b3;
  }
  return hash;
}

TEST(KimiK3, SegmentsAreThoseOfTheModelsOwnCode) {
  for (const PublishedK3& one : kPublishedK3) {
    const auto made = format_named("kimi_k3").render({.variables = ordered_json::parse(one.variables)});
    ASSERT_TRUE(made) << made.error().to_string();
    std::vector<uint32_t> lengths;
    for (const ChatSegment& segment : *made) {
      lengths.push_back(static_cast<uint32_t>(segment.text.size()) | (segment.is_control ? 1u << 31 : 0));
    }
    EXPECT_EQ(made->size(), one.segments);
    EXPECT_EQ(fnv1a(lengths), one.segment_digest) << join_segments(*made);
  }
}

std::string small_kimi_config() { return read_file(data_path("tokenizers/kimi_tiktoken/tokenizer_config.json")); }

const Tokenizer& small_kimi() {
  static const auto made =
      make_kimi_tokenizer(read_file(data_path("tokenizers/kimi_tiktoken/tiktoken.model")), small_kimi_config());
  EXPECT_TRUE(made) << made.error().to_string();
  return **made;
}

TEST(KimiK3, TokensAreThoseOfTheModelsOwnCode) {
  const char* folder = std::getenv("BATON_KIMI");
  if (folder == nullptr) GTEST_SKIP() << "BATON_KIMI is not set";
  const char* config =
      R"({"added_tokens_decoder": {"163586": {"content": "<|end_of_msg|>"}, "163587": {"content": "<|open|>"},
                            "163588": {"content": "<|close|>"}, "163589": {"content": "<|sep|>"}}})";
  const auto kimi = make_kimi_tokenizer(read_file(std::string(folder) + "/tiktoken.model"), config);
  ASSERT_TRUE(kimi) << kimi.error().to_string();
  for (const PublishedK3& one : kPublishedK3) {
    const auto chat =
        encode_chat(format_named("kimi_k3"), **kimi, {.variables = ordered_json::parse(one.variables)}, 1 << 20);
    ASSERT_TRUE(chat) << chat.error().to_string();
    EXPECT_EQ(chat->ids.size(), one.tokens);
    EXPECT_EQ(fnv1a(chat->ids), one.token_digest) << chat->text;
  }
}

constexpr const char* kMarkers[] = {"<｜begin▁of▁sentence｜>",
                                    "<｜end▁of▁sentence｜>",
                                    "<｜User｜>",
                                    "<｜Assistant｜>",
                                    "<think>",
                                    "</think>",
                                    "｜DSML｜",
                                    "<｜tool▁calls▁begin｜>",
                                    "<｜tool▁calls▁end｜>",
                                    "<｜tool▁call▁begin｜>",
                                    "<｜tool▁call▁end｜>",
                                    "<｜tool▁sep｜>",
                                    "<｜tool▁outputs▁begin｜>",
                                    "<｜tool▁outputs▁end｜>",
                                    "<｜tool▁output▁begin｜>",
                                    "<｜tool▁output▁end｜>",
                                    "<|im_user|>",
                                    "<|im_assistant|>",
                                    "<|im_system|>",
                                    "<|im_middle|>",
                                    "<|im_end|>",
                                    "<|tool_calls_section_begin|>",
                                    "<|tool_calls_section_end|>",
                                    "<|tool_call_begin|>",
                                    "<|tool_call_end|>",
                                    "<|tool_call_argument_begin|>"};

// DeepSeek's markers are added tokens that are not all called special.
std::unique_ptr<Tokenizer> tokenizer_with_markers() {
  auto json = ordered_json::parse(read_file(data_path("tokenizers/deepseek_v3/tokenizer.json")));
  int id = static_cast<int>(json["model"]["vocab"].size()) + 8;
  for (const char* marker : kMarkers) {
    const bool special = id % 2 == 0;
    json["added_tokens"].push_back({{"id", id++}, {"content", marker}, {"special", special}, {"normalized", false}});
  }
  auto made = make_hf_tokenizer(json.dump(), "");
  EXPECT_TRUE(made) << made.error().to_string();
  return std::move(*made);
}

// Whatever stands in any field: the marker tokens are exactly the control segments.
TEST(ChatFormat, NoTextBecomesAMarker) {
  const auto with_markers = tokenizer_with_markers();
  int hostile = 0;
  const auto& cases = golden("formats.json")["cases"];
  for (const char* name : {"kimi_k3", "kimi_k2", "kimi_k2_thinking", "kimi_k25", "kimi_k27", "deepseek_v3",
                           "deepseek_r1", "deepseek_v32"}) {
    const bool is_k3 = std::string_view(name) == "kimi_k3";
    const Tokenizer& tokenizer = is_k3 ? small_kimi() : *with_markers;
    std::set<TokenId> markers;
    for (const char* marker : kMarkers) {
      if (const auto id = tokenizer.token_id(marker); id && !is_k3) markers.insert(*id);
    }
    for (TokenId id = tokenizer.vocab_size() - 256; is_k3 && id < tokenizer.vocab_size(); ++id) markers.insert(id);
    for (const ordered_json& one : cases) {
      if (!one["name"].get<std::string>().starts_with("hostile")) continue;
      const auto made = format_named(name).render({.variables = one["variables"]});
      ASSERT_TRUE(made) << name << ": " << made.error().to_string();
      std::vector<std::string> wanted, found;
      for (const ChatSegment& segment : *made) {
        if (segment.is_control) wanted.push_back(segment.text);
      }
      for (const TokenId id : encode_segments(tokenizer, *made)) {
        if (markers.contains(id)) found.push_back(std::string(tokenizer.token_spelling(id)));
      }
      EXPECT_EQ(found, wanted) << name;
      EXPECT_GT(wanted.size(), 8u) << name;
      ++hostile;
    }
  }
  EXPECT_EQ(hostile, 16);
}

TEST(ChatFormat, ContinuesTheFinalMessage) {
  const auto messages = ordered_json::parse(
      R"([{"role":"user","content":"Hi"},{"role":"assistant","reasoning":"r","content":"Hello, I"}])");
  const std::pair<const char*, const char*> ends[] = {
      {"kimi_k3", "<|open|>think<|sep|>r<|close|>think<|sep|><|open|>response<|sep|>Hello, I"},
      {"kimi_k2", "<|im_assistant|>assistant<|im_middle|>Hello, I"},
      {"kimi_k25", "<|im_assistant|>assistant<|im_middle|><think>r</think>Hello, I"},
      {"deepseek_r1", "<｜User｜>Hi<｜Assistant｜>Hello, I"},
      {"deepseek_v32", "<｜User｜>Hi<｜Assistant｜></think>Hello, I"}};
  for (const auto& [name, end] : ends) {
    const auto made =
        format_named(name).render({.variables = {{"messages", messages}}, .continue_final_message = true});
    ASSERT_TRUE(made) << name << ": " << made.error().to_string();
    EXPECT_TRUE(join_segments(*made).ends_with(end)) << join_segments(*made);
    const auto tool = ordered_json::parse(
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]},{"role":"tool","content":"x"}])");
    EXPECT_FALSE(format_named(name).render({.variables = {{"messages", tool}}, .continue_final_message = true}));
  }
  const auto jinja = make_jinja_chat_format("{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}");
  ASSERT_TRUE(jinja);
  const auto made = (*jinja)->render({.variables = {{"messages", messages}}, .continue_final_message = true});
  ASSERT_TRUE(made);
  EXPECT_EQ(join_segments(*made), "[user]Hi[end][assistant]Hello, I");
}

TEST(ChatFormat, TemplatesOfKimiK25GetSortedToolsAndTypeScript) {
  const auto format = make_jinja_chat_format("{% if tools_ts_str %}{{ tools_ts_str }}{% endif %}|{{ tools | tojson }}");
  ASSERT_TRUE(format);
  const auto tools = ordered_json::parse(R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  const auto made = (*format)->render({.variables = {{"tools", tools}}});
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(join_segments(*made),
            "# Tools\n\n## functions\nnamespace functions {\ntype f = (_: {}) => any;\n}\n"
            R"(|[{"function": {"name": "f", "parameters": {}}, "type": "function"}])");
}

TEST(KimiK3, EffortComesByEitherName) {
  const auto text = [](ordered_json variables) {
    variables["messages"] = ordered_json::array();
    variables["add_generation_prompt"] = true;
    const auto made = format_named("kimi_k3").render({.variables = variables});
    return made ? join_segments(*made) : made.error().message();
  };
  EXPECT_NE(text({{"reasoning_effort", "low"}}).find("thinking_effort=low"), std::string::npos);
  EXPECT_NE(text({}).find("thinking_effort=max"), std::string::npos);
  EXPECT_TRUE(text({{"reasoning_effort", "none"}}).ends_with("<|open|>response<|sep|>"));
  EXPECT_TRUE(text({{"enable_thinking", false}}).ends_with("<|open|>response<|sep|>"));
  EXPECT_TRUE(text({{"enable_thinking", false}, {"thinking", true}}).ends_with("<|open|>think<|sep|>"));
  EXPECT_EQ(text({{"reasoning_effort", "medium"}}),
            "Kimi K3 supports thinking_effort values: low, high, max; not 'medium'");
}

TEST(ChatFormat, RefusesWhatItCannotHold) {
  for (const char* name : {"kimi_k3", "kimi_k25", "deepseek_v3", "deepseek_v32"}) {
    for (const char* variables :
         {R"({})", R"({"messages":{}})", R"({"messages":["x"]})", R"({"messages":[{"content":"x"}]})",
          R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]})",
          R"({"messages":[{"role":"user","content":7}]})", R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
          R"({"messages":[{"role":"assistant","tool_calls":{"a":1}}]})"}) {
      const auto made = format_named(name).render({.variables = ordered_json::parse(variables)});
      ASSERT_FALSE(made) << name << " " << variables << join_segments(*made);
      EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
      EXPECT_FALSE(made.error().message().empty());
    }
  }
  EXPECT_FALSE(make_native_chat_format("nobody"));
}

TEST(ChatFormat, DeepSchemasAreBounded) {
  ordered_json deep = "x";
  for (int i = 0; i < 500; ++i) deep = ordered_json{{"properties", {{"a", deep}}}, {"type", "object"}};
  const ordered_json tools = {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", deep}}}}};
  EXPECT_FALSE(tools_to_typescript(deep_sorted(tools)));
  for (const char* name : {"kimi_k3", "kimi_k25", "deepseek_v32"}) {
    EXPECT_FALSE(format_named(name).render({.variables = {{"messages", ordered_json::array()}, {"tools", tools}}}));
  }
}

TEST(ChatFormat, TheCheckpointNamesItsFormat) {
  const Tokenizer& k3 = small_kimi();
  const auto plain = make_hf_tokenizer(read_file(data_path("tokenizers/gpt2/tokenizer.json")), "");
  ASSERT_TRUE(plain);
  const auto with_markers = tokenizer_with_markers();
  const auto name = [&](ChatFormatHints hints, const Tokenizer& tokenizer) {
    return native_chat_format_name(hints, tokenizer);
  };
  EXPECT_EQ(name({.model_type = "kimi_linear", .has_template = true}, k3), "kimi_k3");
  EXPECT_EQ(name({.model_type = "kimi_k3"}, **plain), "kimi_k3");
  EXPECT_EQ(name({.tokenizer_mode = "kimi_k3", .has_template = true}, **plain), "kimi_k3");
  EXPECT_EQ(name({.model_type = "kimi_k25", .has_template = true}, **plain), "");
  EXPECT_EQ(name({.model_type = "kimi_k25"}, **plain), "kimi_k25");
  EXPECT_EQ(name({.model_type = "kimi_k25", .model_name = "Kimi-K2.7-Code"}, **plain), "kimi_k27");
  EXPECT_EQ(name({.model_type = "kimi_k2"}, **plain), "kimi_k2");
  EXPECT_EQ(name({.model_type = "kimi_k2"}, *with_markers), "kimi_k2_thinking");
  EXPECT_EQ(name({.model_type = "deepseek_v3", .model_name = "DeepSeek-R1-0528"}, **plain), "deepseek_r1");
  EXPECT_EQ(name({.model_type = "deepseek_v3", .model_name = "DeepSeek-V3"}, **plain), "deepseek_v3");
  EXPECT_EQ(name({.model_type = "deepseek_v32"}, **plain), "deepseek_v32");
  EXPECT_EQ(name({.model_type = "llama"}, **plain), "");
}

TEST(ChatFormat, ALongChatIsRefusedBeforeItIsTokenised) {
  const ordered_json variables = {{"messages", {{{"role", "user"}, {"content", std::string(5000, 'x')}}}}};
  const auto chat = encode_chat(format_named("kimi_k3"), small_kimi(), {.variables = variables}, 4096);
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace baton::text
