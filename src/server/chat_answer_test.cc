// Chat answers with reasoning and tool calls, over a real connection and a scripted engine: streams say what whole
// answers say, nothing of the format's markers is seen, and every request that can't be served is told why.
#include "server/chat_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "server/testing/chat_server.h"

namespace baton::server {
namespace {

using testing::ChatServer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string> kK2Tokens = {"<think>",
                                            "</think>",
                                            "<|tool_calls_section_begin|>",
                                            "<|tool_calls_section_end|>",
                                            "<|tool_call_begin|>",
                                            "<|tool_call_argument_begin|>",
                                            "<|tool_call_end|>",
                                            "<|im_end|>"};
const std::string kK2Answer =
    "Let me see… \n</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    "<|tool_call_argument_begin|>{\"city\": \"北京\"}<|tool_call_end|><|tool_call_begin|>functions.now:1"
    "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";

ChatServer::Options kimi_k2(std::string answer = kK2Answer, size_t tokens_per_output = 1) {
  return {.answer = std::move(answer),
          .tokens_per_output = tokens_per_output,
          .special_tokens = kK2Tokens,
          .reasoning_parser = "kimi_k2",
          .tool_call_parser = "kimi_k2"};
}

Json with_tools(Json request = Json::object()) {
  request["tools"] = Json::array();
  for (const char* name : {"get_weather", "now"}) {
    request["tools"].push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", Json::object()}}}});
  }
  return request;
}

Json streamed(Json request) {
  request["stream"] = true;
  return request;
}

TEST(ChatAnswer, AStreamSaysWhatTheWholeAnswerSays) {
  for (const size_t tokens_per_output : {1, 2, 7, 1000}) {
    ChatServer server(kimi_k2(kK2Answer, tokens_per_output));
    const auto whole = server.chat(with_tools());
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json& message = whole.body["choices"][0]["message"];
    EXPECT_EQ(message["reasoning"], "Let me see…");
    EXPECT_EQ(message["content"], "I look.");
    const Json calls = Json::parse(R"([
      {"id": "functions.get_weather:0", "type": "function",
       "function": {"name": "get_weather", "arguments": "{\"city\": \"北京\"}"}},
      {"id": "functions.now:1", "type": "function", "function": {"name": "now", "arguments": "{}"}}])");
    EXPECT_EQ(message["tool_calls"], calls);
    EXPECT_EQ(whole.body["choices"][0]["finish_reason"], "tool_calls");

    const auto stream = server.chat(streamed(with_tools({{"stream_options", {{"include_usage", true}}}})));
    EXPECT_TRUE(stream.done);
    const Json put_together = ChatServer::assembled(stream);
    EXPECT_EQ(put_together["reasoning"], message["reasoning"]);
    EXPECT_EQ(put_together["content"], message["content"]);
    ASSERT_EQ(put_together["tool_calls"].size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(put_together["tool_calls"][i]["id"], calls[i]["id"]);
      EXPECT_EQ(put_together["tool_calls"][i]["function"], calls[i]["function"]);
    }
    EXPECT_EQ(put_together["finish_reason"], "tool_calls");
    EXPECT_EQ(stream.chunks.back()["usage"]["completion_tokens"], whole.body["usage"]["completion_tokens"]);
  }
}

TEST(ChatAnswer, NoDeltaMixesKindsOrCalls) {
  ChatServer server(kimi_k2(kK2Answer, 1000));
  const auto stream = server.chat(streamed(with_tools()));
  EXPECT_EQ(stream.chunks[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  for (size_t i = 1; i < stream.chunks.size(); ++i) {
    const Json& delta = stream.chunks[i]["choices"][0]["delta"];
    EXPECT_EQ(delta.size(), 1u) << delta;
    if (delta.contains("tool_calls")) EXPECT_EQ(delta["tool_calls"].size(), 1u);
    EXPECT_EQ(stream.chunks[i]["choices"][0]["finish_reason"].is_null(), i + 1 < stream.chunks.size());
  }
}

TEST(ChatAnswer, TokenIdsAndLogprobsOfMarkersAreNotLost) {
  for (const size_t tokens_per_output : {1, 7, 1000}) {
    ChatServer server(kimi_k2(kK2Answer, tokens_per_output));
    const auto request = with_tools({{"return_token_ids", true}, {"logprobs", true}});
    const auto whole = server.chat(request);
    const auto stream = server.chat(streamed(request));
    Json ids = Json::array();
    size_t logprobs = 0;
    for (const auto& chunk : stream.chunks) {
      for (const auto& id : chunk["choices"][0].value("token_ids", Json::array())) ids.push_back(id);
      if (chunk["choices"][0]["logprobs"].is_object()) logprobs += chunk["choices"][0]["logprobs"]["content"].size();
    }
    EXPECT_EQ(ids, whole.body["choices"][0]["token_ids"]);
    EXPECT_EQ(logprobs, ids.size());
    EXPECT_EQ(whole.body["usage"]["completion_tokens"], ids.size());
  }
}

TEST(ChatAnswer, EveryChoiceHasItsOwnParser) {
  ChatServer server(kimi_k2());
  const auto whole = server.chat(with_tools({{"n", 2}}));
  const auto stream = server.chat(streamed(with_tools({{"n", 2}})));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(whole.body["choices"][i]["message"]["tool_calls"].size(), 2u);
    EXPECT_EQ(ChatServer::assembled(stream, i)["tool_calls"].size(), 2u);
    EXPECT_EQ(ChatServer::assembled(stream, i)["finish_reason"], "tool_calls");
  }
}

TEST(ChatAnswer, ReasoningIsLeftOutWhereItIsNotWanted) {
  ChatServer server(kimi_k2());
  const auto whole = server.chat(with_tools({{"include_reasoning", false}}));
  EXPECT_EQ(whole.body["choices"][0]["message"]["reasoning"], nullptr);
  EXPECT_EQ(whole.body["choices"][0]["message"]["content"], "I look.");
  const auto stream = server.chat(streamed(with_tools({{"include_reasoning", false}})));
  EXPECT_EQ(ChatServer::assembled(stream)["reasoning"], nullptr);
  EXPECT_EQ(ChatServer::assembled(stream)["content"], "I look.");
}

TEST(ChatAnswer, OneCallWhereCallsMayNotBeParallel) {
  ChatServer server(kimi_k2());
  const auto request = with_tools({{"parallel_tool_calls", false}});
  EXPECT_EQ(server.chat(request).body["choices"][0]["message"]["tool_calls"].size(), 1u);
  const Json message = ChatServer::assembled(server.chat(streamed(request)));
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"city\": \"北京\"}");
}

TEST(ChatAnswer, ALengthStopIsNoToolCall) {
  ChatServer server(
      kimi_k2("</think><|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
              "<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>"));
  const auto request = with_tools({{"max_tokens", 22}});
  const auto whole = server.chat(request);
  EXPECT_EQ(whole.body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole.body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\":");
  EXPECT_EQ(whole.body["choices"][0]["message"]["content"], nullptr);
  const Json message = ChatServer::assembled(server.chat(streamed(request)));
  EXPECT_EQ(message["finish_reason"], "length");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"a\":");
}

TEST(ChatAnswer, ToolChoiceNoneLooksForNoCalls) {
  ChatServer server(kimi_k2());
  const auto whole = server.chat(with_tools({{"tool_choice", "none"}}));
  const Json& message = whole.body["choices"][0]["message"];
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_EQ(message["reasoning"], "Let me see…");
  EXPECT_THAT(message["content"].get<std::string>(), StartsWith("I look."));
  EXPECT_THAT(message["content"].get<std::string>(), ::testing::Not(HasSubstr("<|")));
  EXPECT_EQ(whole.body["choices"][0]["finish_reason"], "stop");
}

TEST(ChatAnswer, ThinkingOffIsContent) {
  ChatServer server(kimi_k2("Hello"));
  for (const Json& kwargs : {Json{{"thinking", false}}, Json{{"enable_thinking", false}}}) {
    const auto whole = server.chat({{"chat_template_kwargs", kwargs}});
    EXPECT_EQ(whole.body["choices"][0]["message"]["content"], "Hello");
    EXPECT_EQ(whole.body["choices"][0]["message"]["reasoning"], nullptr);
  }
  EXPECT_EQ(server.chat({{"reasoning_effort", "none"}}).body["choices"][0]["message"]["content"], "Hello");
  const auto thinking = server.chat(Json::object());
  EXPECT_EQ(thinking.body["choices"][0]["message"]["content"], nullptr);
  EXPECT_EQ(thinking.body["choices"][0]["message"]["reasoning"], "Hello");
}

TEST(ChatAnswer, ThePromptsEndSaysWhereTheOutputBegins) {
  const auto message = [](const std::string& reasoning_parser, const std::string& chat_template, const Json& request) {
    ChatServer server({.answer = "Hello",
                       .special_tokens = {},
                       .reasoning_parser = reasoning_parser,
                       .tool_call_parser = "",
                       .chat_template = chat_template});
    const auto answer = server.chat(request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.body["choices"][0]["message"];
  };
  // A template that answers without thinking, whatever the request calls it, and one that always thinks.
  EXPECT_EQ(message("deepseek_r1", "a<think></think>\n", Json::object())["content"], "Hello");
  EXPECT_EQ(message("deepseek_v3", "a<think>\n", Json::object())["reasoning"], "Hello");
  EXPECT_EQ(message("kimi_k2", "a<think>", {{"chat_template_kwargs", {{"thinking", false}}}})["reasoning"], "Hello");
  // The answer goes on with content that the request has begun.
  const Json begun{
      {"messages", Json::parse(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "Oh, "}])")},
      {"continue_final_message", true}};
  const std::string joined = "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(message("deepseek_r1", joined, begun)["content"], "Hello");
}

TEST(ChatAnswer, HermesCallsGetFreshIds) {
  ChatServer server({.answer = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"
                               "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
                     .special_tokens = {},
                     .reasoning_parser = "",
                     .tool_call_parser = "hermes"});
  const Json whole = server.chat(with_tools()).body["choices"][0]["message"];
  const Json stream = ChatServer::assembled(server.chat(streamed(with_tools())));
  std::set<std::string> ids;
  for (const Json& message : {whole, stream}) {
    ASSERT_EQ(message["tool_calls"].size(), 2u);
    for (const auto& call : message["tool_calls"]) {
      ids.insert(call["id"].get<std::string>());
      EXPECT_THAT(call["id"].get<std::string>(), StartsWith("chatcmpl-tool-"));
      EXPECT_EQ(call["function"], (Json{{"name", "now"}, {"arguments", "{}"}}));
    }
  }
  EXPECT_EQ(ids.size(), 4u);
}

TEST(ChatAnswer, KimiK3ShowsNoMarker) {
  ChatServer server({.answer = "plan<|close|>think<|sep|><|open|>response<|sep|>Hi<|close|>response<|sep|><|open|>tools"
                               "<|sep|><|open|>call tool=\"now\" index=\"1\"<|sep|><|open|>argument key=\"zone\" "
                               "type=\"string\"<|sep|>UTC<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools"
                               "<|sep|><|close|>message<|sep|><|end_of_msg|>",
                     .special_tokens = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"},
                     .reasoning_parser = "kimi_k3",
                     .tool_call_parser = "kimi_k3"});
  const Json message = ChatServer::assembled(server.chat(streamed(with_tools())));
  EXPECT_EQ(message["reasoning"], "plan");
  EXPECT_EQ(message["content"], "Hi");
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(message["tool_calls"][0]["function"], (Json{{"name", "now"}, {"arguments", "{\"zone\": \"UTC\"}"}}));
  const auto none = server.chat(with_tools({{"tool_choice", "none"}}));
  EXPECT_EQ(none.body["choices"][0]["message"]["content"], "Hi");
  EXPECT_FALSE(none.body["choices"][0]["message"].contains("tool_calls"));
  EXPECT_EQ(none.body["choices"][0]["finish_reason"], "stop");
}

TEST(ChatAnswer, StopStringsCutBeforeTheParser) {
  ChatServer server(kimi_k2("thoughts here</think>answer goes on"));
  const auto in_answer = server.chat({{"stop", "goes"}});
  EXPECT_EQ(in_answer.body["choices"][0]["message"]["reasoning"], "thoughts here");
  EXPECT_EQ(in_answer.body["choices"][0]["message"]["content"], "answer ");
  EXPECT_EQ(in_answer.body["choices"][0]["stop_reason"], "goes");
  // A stop string that looks like the beginning of a marker holds it back, and cuts nothing of it.
  const auto held = server.chat({{"stop", "</thinkers>"}});
  EXPECT_EQ(held.body["choices"][0]["message"]["reasoning"], "thoughts here");
  EXPECT_EQ(held.body["choices"][0]["message"]["content"], "answer goes on");
  const auto at_marker = server.chat({{"stop", "e</think>"}});
  EXPECT_EQ(at_marker.body["choices"][0]["message"]["reasoning"], "thoughts her");
  EXPECT_EQ(at_marker.body["choices"][0]["message"]["content"], nullptr);
}

TEST(ChatAnswer, WithoutParsersNothingChanges) {
  ChatServer server(
      {.answer = "a<think>b</think>", .special_tokens = {}, .reasoning_parser = "", .tool_call_parser = ""});
  const auto whole = server.chat(Json::object());
  EXPECT_EQ(whole.body["choices"][0]["message"]["content"], "a<think>b</think>");
  EXPECT_EQ(whole.body["choices"][0]["message"]["reasoning"], nullptr);
}

TEST(ChatHistory, CallsReachTheTemplateAsObjects) {
  auto options = kimi_k2();
  options.chat_template =
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
      "[{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}{% endif %}"
      "{% if m.reasoning_content is defined %}({{ m.reasoning }}){% endif %}|{% endfor %}"
      "{% if tools is defined %}tools {{ tools | length }}{% endif %}";
  options.exclude_tools_when_tool_choice_none = true;
  ChatServer server(options);
  const auto prompt_of = [&](const Json& arguments, const Json& more = Json::object()) {
    Json request = with_tools(more);
    request["messages"] = Json::parse(R"([{"role": "user", "content": "w?"},
      {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
        {"id": "functions.f:0", "type": "function", "function": {"name": "f"}}]},
      {"role": "tool", "tool_call_id": "functions.f:0", "content": [{"type": "text", "text": "21"}]},
      {"role": "assistant", "content": "21", "tool_calls": []}])");
    if (!arguments.is_null()) request["messages"][1]["tool_calls"][0]["function"]["arguments"] = arguments;
    const auto answer = server.chat(request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return server.last_prompt();
  };
  const std::string wanted = "user:w?|assistant:[functions.f:0 f {\"x\": 1}](hm)|tool:21|assistant:21|tools 2";
  EXPECT_EQ(prompt_of("{\"x\": 1}"), wanted);
  EXPECT_EQ(prompt_of({{"x", 1}}), wanted);
  EXPECT_THAT(prompt_of(nullptr), HasSubstr("f {}]"));
  EXPECT_THAT(prompt_of(""), HasSubstr("f {}]"));
  EXPECT_THAT(prompt_of("{\"x\": "), HasSubstr("f \"{\\\"x\\\": \"]"));
  EXPECT_THAT(prompt_of(nullptr, {{"tool_choice", "none"}}), ::testing::Not(HasSubstr("tools")));
}

TEST(ChatTools, MalformedOnesAreRefusedByName) {
  std::ifstream file(BATON_SOURCE_DIR "/tests/data/api/bad_tools.json");
  const Json cases = Json::parse(file);
  ASSERT_GT(cases.size(), 15u);
  ChatServer with(kimi_k2());
  auto options = kimi_k2();
  options.enable_auto_tool_choice = false;
  ChatServer without(options);
  for (const auto& bad : cases) {
    auto& server = bad.value("auto_tool_choice", true) ? with : without;
    const auto answer = server.chat(bad["body"]);
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_EQ(answer.body["error"]["param"], bad["param"]) << answer.body;
    EXPECT_THAT(answer.body["error"]["message"].get<std::string>(), HasSubstr(bad["message"].get<std::string>()));
  }
}

// Its only token is nobody's text, so it need not know how calls are read.
TEST(ChatTools, APrefillEngineNeedsNoToolParser) {
  auto options = kimi_k2();
  options.tool_call_parser = options.reasoning_parser = "";
  ChatServer server(options);
  const auto answer =
      server.chat(with_tools({{"max_tokens", 1}, {"kv_transfer_params", {{"do_remote_decode", true}}}}));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.body["choices"][0]["finish_reason"], "length");
}

}  // namespace
}  // namespace baton::server
