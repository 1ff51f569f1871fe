// However a model's output is cut into deltas, its reasoning, content and calls come out the same, and as the format
// says. Cases are data: tests/data/tool_calls.
#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace baton::text {
namespace {

using nlohmann::json;

struct Piece {
  std::string text;
  bool token = false;
};
using Pieces = std::vector<Piece>;

struct Call {
  std::string id, name, arguments;
  bool ended = false;
  bool operator==(const Call&) const = default;
};

struct Result {
  std::string reasoning, content;
  std::vector<Call> calls;
  std::string fault;  // an order of events that no reader could follow
  bool operator==(const Result&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Result& result) {
  out << "reasoning " << json(result.reasoning) << " content " << json(result.content) << " calls [";
  for (const auto& call : result.calls) {
    out << json(call.id) << ' ' << json(call.name) << ' ' << json(call.arguments) << (call.ended ? " ended, " : ", ");
  }
  return out << "] " << result.fault;
}

Result gather(const OutputEvents& events) {
  Result result;
  for (const auto& event : events) {
    const bool running = !result.calls.empty() && !result.calls.back().ended;
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        result.reasoning += event.text;
        if (running) result.fault = "reasoning inside a call";
        break;
      case OutputEvent::Kind::kContent:
        result.content += event.text;
        if (running) result.fault = "content inside a call";
        break;
      case OutputEvent::Kind::kCallBegin:
        if (running || event.text.empty()) result.fault = "a call begins inside a call, or without a name";
        result.calls.push_back({event.id, event.text, {}, false});
        break;
      case OutputEvent::Kind::kCallArguments:
        if (!running) {
          result.fault = "arguments outside a call";
        } else {
          result.calls.back().arguments += event.text;
        }
        break;
      case OutputEvent::Kind::kCallEnd:
        if (!running) {
          result.fault = "an end without a call";
        } else {
          result.calls.back().ended = true;
        }
        break;
    }
    if (event.text.empty() && event.kind != OutputEvent::Kind::kCallEnd) result.fault = "an empty delta";
  }
  return result;
}

struct Case {
  OutputFormat format;
  bool calls_wanted = true;
  std::optional<bool> thinking;
  std::set<std::string> tokens;  // of every marker that the format looks for

  Result run(const Pieces& pieces, bool with_tokens) const {
    auto parser = format.make_parser({.thinking = thinking,
                                      .starts_inside = {},
                                      .calls = calls_wanted,
                                      .token_markers = with_tokens ? &tokens : nullptr});
    OutputEvents events;
    if (!parser) return {};
    for (const auto& piece : pieces) parser->push(piece.text, piece.token, events);
    parser->finish(events);
    return gather(events);
  }
};

Case case_of(const json& one) {
  Case made{
      *OutputFormat::make(one.value("reasoning", ""), one.value("tools", "")), one.value("calls_wanted", true), {}, {}};
  if (one.contains("thinking")) made.thinking = one["thinking"].get<bool>();
  for (auto& marker : made.format.markers(made.calls_wanted)) made.tokens.insert(std::move(marker));
  return made;
}

Result expected(const json& one) {
  Result result;
  result.reasoning = one["expect"]["reasoning"].get<std::string>();
  result.content = one["expect"]["content"].get<std::string>();
  for (const auto& call : one["expect"]["calls"]) {
    result.calls.push_back({call[0].get<std::string>(), call[1].get<std::string>(), call[2].get<std::string>(), true});
  }
  return result;
}

// The text with every marker as a token.
Pieces tokenised(const std::string& text, const std::set<std::string>& tokens) {
  Pieces pieces;
  std::string plain;
  for (size_t at = 0; at < text.size();) {
    const std::string* found = nullptr;
    for (const auto& token : tokens) {
      if (text.compare(at, token.size(), token) == 0) found = &token;
    }
    if (found == nullptr) {
      plain += text[at++];
      continue;
    }
    if (!plain.empty()) pieces.push_back({std::exchange(plain, {}), false});
    pieces.push_back({*found, true});
    at += found->size();
  }
  if (!plain.empty()) pieces.push_back({plain, false});
  return pieces;
}

// Cuts every text piece after each byte with a probability; 1 is one byte at a time.
Pieces cut(const Pieces& pieces, double probability, std::mt19937_64& random) {
  Pieces made;
  std::bernoulli_distribution here(probability);
  for (const auto& piece : pieces) {
    std::string part;
    for (const char c : piece.text) {
      part += c;
      if (!piece.token && here(random)) made.push_back({std::exchange(part, {}), false});
    }
    if (!part.empty()) made.push_back({part, piece.token});
  }
  return made;
}

Pieces cut_at(const Pieces& pieces, size_t at) {
  Pieces made;
  for (const auto& piece : pieces) {
    if (piece.token || at == 0 || at >= piece.text.size()) {
      made.push_back(piece);
    } else {
      made.push_back({piece.text.substr(0, at), false});
      made.push_back({piece.text.substr(at), false});
    }
    at -= std::min(at, piece.text.size());
  }
  return made;
}

void check_every_cut(const Case& parser, const Pieces& pieces, bool with_tokens, const Result& wanted, bool few) {
  EXPECT_EQ(parser.run(pieces, with_tokens), wanted) << "whole";
  std::mt19937_64 random(7);
  EXPECT_EQ(parser.run(cut(pieces, 1, random), with_tokens), wanted) << "one byte at a time";
  for (int round = 0; round < (few ? 3 : 20); ++round) {
    const Pieces cuts = cut(pieces, 0.05 + 0.04 * round, random);
    ASSERT_EQ(parser.run(cuts, with_tokens), wanted) << "random cut " << round;
  }
  size_t length = 0;
  for (const auto& piece : pieces) length += piece.text.size();
  for (size_t at = 1; at < length; at += few ? 1 + length / 50 : 1) {
    ASSERT_EQ(parser.run(cut_at(pieces, at), with_tokens), wanted) << "cut at " << at;
  }
}

std::vector<json> all_cases() {
  std::vector<json> cases;
  for (const auto& entry : std::filesystem::directory_iterator(BATON_SOURCE_DIR "/tests/data/tool_calls")) {
    std::ifstream file(entry.path());
    const json document = json::parse(file);
    for (json one : document["cases"]) {
      one["file"] = entry.path().filename().string();
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

TEST(OutputParser, EveryCaseInEveryCut) {
  const auto cases = all_cases();
  ASSERT_GE(cases.size(), 150u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["file"].get<std::string>() + ": " + one["name"].get<std::string>());
    const Case parser = case_of(one);
    const Result wanted = expected(one);
    const std::string mode = one.value("mode", "both");
    const bool few = one.contains("split");
    if (mode == "pieces") {
      Pieces pieces;
      for (const auto& piece : one["pieces"]) {
        if (piece.is_string()) {
          pieces.push_back({piece.get<std::string>(), false});
        } else {
          pieces.push_back({piece["token"].get<std::string>(), true});
        }
      }
      check_every_cut(parser, pieces, true, wanted, few);
      continue;
    }
    const auto text = one["text"].get<std::string>();
    check_every_cut(parser, {{text, false}}, false, wanted, few);
    if (mode == "both") check_every_cut(parser, tokenised(text, parser.tokens), true, wanted, few);
  }
}

// Random rows of markers, halves of them, JSON and junk: no order of events is broken, and no cut changes the result.
TEST(OutputParser, HostileTextInAnyCutGivesOneResult) {
  std::mt19937_64 random(11);
  for (const auto& reasoning : {"", "kimi_k2", "deepseek_r1", "kimi_k3"}) {
    for (const auto& tools : {"", "kimi_k2", "hermes", "deepseek_v3", "deepseek_v31", "kimi_k3"}) {
      auto format = OutputFormat::make(reasoning, tools);
      if (!format) continue;
      Case parser{*format, true, {}, {}};
      for (auto& marker : format->markers(true)) parser.tokens.insert(marker);
      std::vector<std::string> words = {"functions.f:0",
                                        "{\"a\": 1}",
                                        "\n```json\n",
                                        "```",
                                        "call tool=\"f\"",
                                        "think",
                                        "tools",
                                        "argument key=\"k\" type=\"number\"",
                                        "response",
                                        "call",
                                        "message",
                                        "argument",
                                        "{\"name\": \"f\", \"arguments\": {\"x\": \"",
                                        "\"}}",
                                        " \n",
                                        "\\",
                                        "<",
                                        "<|",
                                        "é",
                                        "\xff",
                                        "{\"name\": \"g\", ",
                                        "\"arguments\": [1]}"};
      for (const auto& marker : parser.tokens) {
        for (int copies = 0; copies < 3; ++copies) words.push_back(marker);
        words.push_back(marker.substr(0, marker.size() / 2));
      }
      for (int round = 0; round < 60; ++round) {
        std::string text;
        for (size_t count = random() % 25; count > 0; --count) text += words[random() % words.size()];
        for (const bool with_tokens : {false, true}) {
          const Pieces pieces = with_tokens ? tokenised(text, parser.tokens) : Pieces{{text, false}};
          const Result whole = parser.run(pieces, with_tokens);
          ASSERT_EQ(whole.fault, "") << reasoning << '/' << tools << ' ' << text;
          for (const auto& call : whole.calls) ASSERT_TRUE(call.ended) << text;
          ASSERT_EQ(parser.run(cut(pieces, 1, random), with_tokens), whole) << reasoning << '/' << tools << ' ' << text;
          ASSERT_EQ(parser.run(cut(pieces, 0.3, random), with_tokens), whole) << text;
        }
      }
    }
  }
}

// A stream of what is always "almost a marker" must not be read again and again.
TEST(OutputParser, WorkIsLinearInTheText) {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"kimi_k2", "kimi_k2"}, {"deepseek_r1", "hermes"}, {"deepseek_r1", "deepseek_v3"}, {"kimi_k3", "kimi_k3"}};
  const std::vector<std::string> beginnings = {
      "",
      "</think>",
      "</think><tool_call>{\"name\": \"f\", \"arguments\": \"",
      "</think><tool_call>{",
      "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
      "<|tool_calls_section_begin|><|tool_call_begin|>",
      "<|open|>",
      "<|open|>call ",
      "<|open|>tools<|sep|><|open|>call tool=\"f\"<|sep|><|open|>argument key=\"a\"<|sep|>"};
  for (const auto& [reasoning, tools] : pairs) {
    const auto format = OutputFormat::make(reasoning, tools);
    ASSERT_TRUE(format.has_value());
    for (const auto& beginning : beginnings) {
      for (const std::string filler : {"<", " ", "`", "<|open|>", "<|close|>argument ", "<|open|>call a=\""}) {
        const auto begin = std::chrono::steady_clock::now();
        auto parser =
            format->make_parser({.thinking = {}, .starts_inside = {}, .calls = true, .token_markers = nullptr});
        OutputEvents events;
        parser->push(beginning, false, events);
        for (size_t sent = 0; sent < 100'000; sent += filler.size()) parser->push(filler, false, events);
        parser->finish(events);
        const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        EXPECT_LT(seconds, 2) << tools << " after '" << beginning << "' of '" << filler << "'";
      }
    }
  }
}

TEST(OutputParser, TheEndOfThePromptTellsWhereTheOutputBegins) {
  const auto r1 = *OutputFormat::make("deepseek_r1", ""), k3 = *OutputFormat::make("kimi_k3", "kimi_k3");
  EXPECT_EQ(r1.prompt_opens_reasoning("<｜User｜>hi<｜Assistant｜><think>\n"), true);
  EXPECT_EQ(r1.prompt_opens_reasoning("<｜Assistant｜></think>"), false);
  EXPECT_EQ(r1.prompt_opens_reasoning("<|im_start|>assistant\n"), std::nullopt);
  EXPECT_EQ(r1.prompt_opens_reasoning(""), std::nullopt);
  EXPECT_EQ(k3.prompt_opens_reasoning("<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>"), true);
  EXPECT_EQ(k3.prompt_opens_reasoning("<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>"), false);
  EXPECT_EQ(k3.prompt_opens_reasoning("<think>"), std::nullopt);
  OutputEvents events;
  auto parser = r1.make_parser({.thinking = {}, .starts_inside = false});
  parser->push("answer", false, events);
  parser->finish(events);
  EXPECT_EQ(gather(events).content, "answer");
}

TEST(OutputParser, NamesAreChecked) {
  EXPECT_EQ(OutputFormat::make("no_such", "").error().message(),
            "invalid reasoning parser: no_such (chose from { deepseek_r1,deepseek_v3,kimi_k2,kimi_k3 })");
  EXPECT_EQ(OutputFormat::make("", "nope").error().message(),
            "invalid tool call parser: nope (chose from { deepseek_v3,deepseek_v31,hermes,kimi_k2,kimi_k3 })");
  EXPECT_FALSE(OutputFormat::make("kimi_k2", "kimi_k3").has_value());
  EXPECT_FALSE(OutputFormat::make("kimi_k3", "hermes").has_value());
  EXPECT_TRUE(OutputFormat::make("kimi_k3", "").has_value());
  EXPECT_EQ(OutputFormat::make("", "")->make_parser({}), nullptr);
  EXPECT_EQ(OutputFormat::make("", "hermes")->make_parser({.thinking = {}, .starts_inside = {}, .calls = false}),
            nullptr);
}

}  // namespace
}  // namespace baton::text
