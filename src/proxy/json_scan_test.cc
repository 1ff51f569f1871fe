// The quick ways beside the thorough ones: what a scan takes, a parser takes, and both make the same of it.
#include "proxy/json_scan.h"

#include <gtest/gtest.h>

#include "net/sse.h"
#include "proxy/request_plan.h"

namespace baton::proxy {
namespace {

// nlohmann's parser is the judge. Keys that are escaped or come twice are left to it.
TEST(JsonScan, TakesWhatAParserTakesAndNothingElse) {
  const std::string_view values[] = {"1",
                                     "-0",
                                     "01",
                                     "1.",
                                     "1.5e",
                                     "1.5e-3",
                                     "+1",
                                     ".5",
                                     "-",
                                     "true",
                                     "tru",
                                     "null",
                                     "nul",
                                     R"("a")",
                                     R"("a)",
                                     "\"\n\"",
                                     R"("\u00e9")",
                                     R"("\ud800")",
                                     R"("\ud83d\ude00")",
                                     R"("\udc00")",
                                     R"("\ud83d\u0041")",
                                     R"("\x")",
                                     "\"\xff\"",
                                     "\"\xc3\xa9\"",
                                     "\"12345678\xc3\"",
                                     R"("12345678\")",
                                     R"("1234567\"")",
                                     R"("\\")",
                                     "[]",
                                     "[1,]",
                                     "[1 2]",
                                     "[,1]",
                                     "[1,[2,{}]]",
                                     "{}",
                                     R"({"a":1})",
                                     R"({"a":1,})",
                                     R"({"a" 1})",
                                     R"({a:1})",
                                     R"({"a":})",
                                     " [ 1 , 2 ] ",
                                     "[1]]",
                                     "",
                                     R"("1234567 tab:	")",
                                     R"({"x":{"y":[{"z":"}"}]}})"};
  for (const auto value : values) {
    for (const std::string& text :
         {R"({"k":)" + std::string(value) + "}", R"({"j":0, "k" : )" + std::string(value) + " ,\"l\":[]}"})
      EXPECT_EQ(scan_object(text, 20).has_value(), Json::accept(text)) << text;
  }
  for (const auto text : {"", "[1]", "{", "{}x", R"({"a":1)", R"({"a":1}})"})
    EXPECT_FALSE(scan_object(text, 20)) << text;
  EXPECT_TRUE(scan_object(" {} ", 20));
  EXPECT_FALSE(scan_object(R"({"a":1,"a":2})", 20));
  EXPECT_FALSE(scan_object(R"({"\u0061":1})", 20));
  EXPECT_FALSE(scan_object(R"({"a":[[[1]]]})", 3));
  EXPECT_TRUE(scan_object(R"({"a":[[[1]]]})", 4));
  EXPECT_FALSE(scan_object(std::string(1'000'000, '['), 200));
}

TEST(JsonScan, SaysWhereMembersStand) {
  const auto found = scan_object(R"( { "prompt" : "ab\n" ,"messages":[{"content":["data:xyz",7]}] } )", 20);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].key, "prompt");
  EXPECT_EQ((*found)[0].value, R"("ab\n")");
  EXPECT_EQ((*found)[1].value, R"([{"content":["data:xyz",7]}])");
  EXPECT_EQ((*found)[1].text_bytes, kImageWeight + kTokenWeight);
  EXPECT_EQ(scan_array("[[1,2], [3]]", 5)->at(1), "[3]");
}

TEST(RequestPlan, LongPromptsTravelAsTheyCame) {
  const std::string prompt = R"("caf\u00e9 )" + std::string(200, 'x') + R"( \"q\" ")";
  const std::string body = R"({"model":"m", "prompt":)" + prompt + R"(,"max_tokens":5,"stream":false})";
  const auto plan = plan_request("/v1/completions", body).value();
  EXPECT_TRUE(plan.hand_off);
  for (const std::string& text : {prefill_body(plan), decode_body(plan, R"({"x":1})")}) {
    EXPECT_NE(text.find(prompt), std::string::npos) << text;
    const Json sent = Json::parse(text);
    EXPECT_EQ(sent["prompt"], Json::parse(prompt));
    EXPECT_EQ(sent["model"], "m");
  }
  // Another prompt in its place, as a resume at engines that know none has it.
  const ResumePoint resume{.prompt = {1, 2}, .outputs = {3}, .seed = {}, .baton = false};
  EXPECT_EQ(Json::parse(decode_body(plan, "", &resume))["prompt"], Json({1, 2, 3}));
}

TEST(RequestPlan, SeveralLongPromptsAreNotHandedOff) {
  const auto hands_off = [](std::string prompt) {
    return plan_request("/v1/completions", R"({"prompt":)" + prompt + "}")->hand_off;
  };
  const std::string text = "\"" + std::string(100, 'a') + "\"", ids = Json(std::vector<int>(50, 7)).dump();
  EXPECT_TRUE(hands_off("[" + text + "]"));
  EXPECT_FALSE(hands_off("[" + text + "," + text + "]"));
  EXPECT_TRUE(hands_off(ids));
  EXPECT_TRUE(hands_off("[" + ids + "]"));
  EXPECT_FALSE(hands_off("[ " + ids + " , [1]]"));
}

// Every chunk that the quick way takes comes out as the thorough way's would, and leaves the same notes.
TEST(PassChunk, MakesOfAChunkWhatTheThoroughWayMakes) {
  const std::string chunks[] = {
      R"({"id":"a","object":"text_completion","choices":[{"index":0,"text":"é\n","logprobs":null,"token_ids":[7,-8]}]})",
      R"({"choices":[{"index":0,"text":"","token_ids":[],"prompt_token_ids":null,"finish_reason":"stop"}],"usage":null})",
      R"({"choices":[{"index":1,"delta":{"content":"x"},"token_ids":[3]}]})",
      R"( { "choices" : [ {"index" : 0 , "delta":{"tool_calls":[{"index":0}]} , "token_ids" : [ 4 ] , "z":1} ] } )",
      R"({"choices":[{"index":0,"text":"a","stop_reason":5,"token_ids":null}],"created":3})",
      R"({"choices":[{"text":"no index","token_ids":[9]}]})"};
  int passed = 0;
  for (const char* path : {"/v1/completions", "/v1/chat/completions"})
    for (const char* ids : {"true", "false"})
      for (const auto& chunk : chunks) {
        const auto plan = plan_request(path, fmt::format(R"({{"stream":true,"return_token_ids":{}}})", ids)).value();
        std::string out = "before";
        std::vector<TokenId> output_ids = {1};
        if (!pass_chunk(plan, chunk, output_ids, out)) {
          EXPECT_EQ(out, "before");
          EXPECT_EQ(output_ids.size(), 1u);
          continue;
        }
        ++passed;
        Json thorough = Json::parse(chunk);
        const auto notes = adapt_answer(plan, thorough, true, -1);
        EXPECT_EQ(Json::parse(out.substr(6)), thorough) << chunk;
        EXPECT_EQ(std::vector(output_ids.begin() + 1, output_ids.end()), notes.output_ids) << chunk;
      }
  EXPECT_GE(passed, 16);
}

TEST(PassAnswer, MakesOfAnAnswerWhatTheThoroughWayMakes) {
  const std::string answers[] = {
      R"({"id":"a","choices":[{"index":0,"text":"é","token_ids":[1,2],"prompt_token_ids":[3]}],"usage":{"prompt_tokens":1,)"
      R"("completion_tokens":2,"prompt_tokens_details":null},"kv_transfer_params":{"a":[1]}})",
      R"({ "choices" : [ {"index":0,"message":{"content":"x"},"token_ids":null} , {"index":1,"token_ids":[4]} ] ,)"
      R"("prompt_token_ids":[5, 6],"usage":null})",
      R"({"choices":[{"index":0,"text":"a","stop_reason":7}],"usage":{"prompt_tokens":3},"kv_transfer_params":null})"};
  for (const char* path : {"/v1/completions", "/v1/chat/completions"})
    for (const char* ids : {"true", "false"})
      for (const int cached : {-1, 4})
        for (const auto& answer : answers) {
          const auto plan = plan_request(path, fmt::format(R"({{"return_token_ids":{}}})", ids)).value();
          AnswerNotes quick;
          std::string out;
          const bool spaced = answer.find("[5, 6]") != std::string::npos;
          ASSERT_EQ(pass_answer(plan, answer, cached, quick, out), !spaced) << "ids with spaces are the thorough way's";
          if (spaced) continue;
          Json thorough = Json::parse(answer);
          const auto notes = adapt_answer(plan, thorough, false, cached);
          EXPECT_EQ(Json::parse(out), thorough) << out;
          EXPECT_EQ(quick.output_ids, notes.output_ids);
          EXPECT_EQ(quick.prompt_ids, notes.prompt_ids);
          EXPECT_EQ(quick.prompt_tokens, notes.prompt_tokens);
          EXPECT_EQ(quick.completion_tokens, notes.completion_tokens);
        }
  const auto plan = plan_request("/v1/completions", "{}").value();
  for (const char* answer : {R"({"error":{}})", R"({"choices":[]})", R"({"object":"error","choices":[{"index":0}]})",
                             R"({"choices":[{"index":0,"stop_reason":"recomputed"}]})", "[]", "", R"({"usage":{}})"}) {
    AnswerNotes notes;
    std::string out = "before";
    EXPECT_FALSE(pass_answer(plan, answer, -1, notes, out)) << answer;
    EXPECT_EQ(out, "before");
  }
}

TEST(PassChunk, LeavesWhatSaysMoreToTheThoroughWay) {
  const auto plan = plan_request("/v1/completions", R"({"stream":true})").value();
  for (const std::string chunk :
       {R"({"error":{"message":"x"}})", R"({"object":"error","choices":[{"index":0,"text":"a"}]})",
        R"({"choices":[{"index":0,"text":"a"}],"usage":{"prompt_tokens":1}})", R"({"choices":[]})", R"([1])", "{",
        R"({"choices":[{"index":0,"text":"","stop_reason":"recomputed"}]})",
        R"({"choices":[{"index":0,"text":"a","prompt_token_ids":[1]}]})",
        R"({"choices":[{"index":0,"text":"a"}],"kv_transfer_params":{}})",
        R"({"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}]})",
        R"({"choices":[{"token_ids":[1],"text":"a"}]})", R"({"choices":[{"index":0,"token_ids":["a"]}]})",
        R"({"choices":[{"index":0,"text":"\ud800"}]})"}) {
    std::string out;
    std::vector<TokenId> ids;
    EXPECT_FALSE(pass_chunk(plan, chunk, ids, out)) << chunk;
    EXPECT_TRUE(out.empty() && ids.empty());
  }
}

}  // namespace
}  // namespace baton::proxy
