// Requests that go on elsewhere amid their answer, and those that start at the decode engine: one answer for the
// client.
#include "proxy/fsm_test_support.h"

namespace baton::proxy {
namespace {

using namespace std::chrono_literals;

constexpr auto kOffer = R"({"do_remote_prefill":true,"baton_offer_id":"ab","baton_seed":"00000000000000ff"})";
constexpr auto kRecomputed = R"({"choices":[{"index":0,"text":"","finish_reason":"stop","stop_reason":"recomputed"}],)"
                             R"("kv_transfer_params":{"baton_seed":"00000000000000ff"}})";

PrefillAnswered offered(int cached = 3) {
  const Json body = {{"choices", Json::array()},
                     {"kv_transfer_params", Json::parse(kOffer)},
                     {"usage", {{"prompt_tokens_details", {{"cached_tokens", cached}}}}}};
  return {answer(200, body.dump())};
}

class Resume : public FsmTest {
 protected:
  void stream_some() {
    feed(Begin{});
    feed(offered());
    feed(DecodeStreaming{});
    feed(DecodeEvent{R"({"id":"cmpl-id","created":5,"model":"m","choices":[{"index":0,"text":"ab",)"
                     R"("prompt_token_ids":[1,2],"token_ids":[5,6]}]})"});
  }
};

TEST_F(Resume, ARecomputedStreamGoesOnByTokenIdsAndTheClientSeesOneStream) {
  make(R"({"prompt":"hello","max_tokens":7,"min_tokens":2,"stream":true,"temperature":1})");
  stream_some();
  auto actions = feed(DecodeEvent{kRecomputed});
  EXPECT_EQ(written(actions), "") << "internal to proxy and engines";
  EXPECT_TRUE(find<DropDecode>(actions));
  const auto* p = find<CallPrefill>(actions);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->request_id, "id-retry1");
  Json body = Json::parse(p->body);
  EXPECT_EQ(body["prompt"], "hello") << "text is never put together again";
  EXPECT_EQ(body["max_tokens"], 3);
  EXPECT_EQ(body["min_tokens"], 3);
  EXPECT_EQ(body["kv_transfer_params"]["do_remote_decode"], true);
  EXPECT_EQ(body["kv_transfer_params"]["_vllm_ascend_recompute_token_ids"].dump(), "[1,2,5,6]");
  EXPECT_EQ(body["kv_transfer_params"]["baton_resume_output_count"], 2);
  EXPECT_EQ(body["kv_transfer_params"]["baton_seed"], "00000000000000ff");
  actions = feed(offered(100));
  ASSERT_TRUE(find<CallDecode>(actions));
  body = Json::parse(find<CallDecode>(actions)->body);
  EXPECT_EQ(body["max_tokens"], 7) << "the engine counts from the first token ever generated";
  EXPECT_EQ(body["min_tokens"], 2);
  EXPECT_EQ(body["kv_transfer_params"]["baton_offer_id"], "ab");
  EXPECT_EQ(body["kv_transfer_params"]["_vllm_ascend_recompute_token_ids"].dump(), "[1,2,5,6]");
  feed(DecodeStreaming{});
  actions = feed(DecodeEvent{
      R"({"id":"cmpl-id-retry1","created":9,"model":"m","choices":[{"index":0,"text":"c","token_ids":[7]}]})"});
  const Json chunk = Json::parse(written(actions));
  EXPECT_EQ(chunk["id"], "cmpl-id");
  EXPECT_EQ(chunk["created"], 5);
  actions = feed(DecodeEvent{
      R"({"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":1}}})"});
  feed(DecodeEvent{"[DONE]"});
  EXPECT_EQ(fsm_->output_ids(), (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(fsm_->summary().recomputes, 1);
  EXPECT_EQ(fsm_->summary().cached_tokens, 3) << "of the first prefill";
  EXPECT_EQ(fsm_->summary().completion_tokens, 3);
  expect_no_charges();
}

// The connection breaks between the last token and [DONE]: to go on would give the client tokens behind the end.
TEST_F(Resume, AStreamThatBreaksBehindItsLastWordIsNotResumed) {
  make(R"({"prompt":"hello","max_tokens":7,"stream":true,"temperature":0})");
  stream_some();
  feed(DecodeEvent{R"({"id":"cmpl-id","choices":[{"index":0,"text":"","token_ids":[],"finish_reason":"stop"}]})"});
  const auto actions = feed(DecodeEnded{fail(Code::kUnavailable, "connection reset")});
  EXPECT_FALSE(find<CallPrefill>(actions));
  EXPECT_EQ(written(actions), "[DONE]\n");
  EXPECT_TRUE(find<EndStream>(actions));
  EXPECT_TRUE(ends_with<Finish>(actions));
  EXPECT_EQ(fsm_->summary().status, 200);
  EXPECT_FALSE(fsm_->summary().cut_after_first_byte);
  expect_no_charges();
}

TEST_F(Resume, TheUsageThatALostEndWouldHaveSaidIsCounted) {
  make(R"({"prompt":"hello","max_tokens":2,"stream":true,"stream_options":{"include_usage":true}})");
  stream_some();
  feed(DecodeEvent{R"({"id":"cmpl-id","choices":[{"index":0,"text":"","token_ids":[7],"finish_reason":"length"}]})"});
  auto actions = feed(DecodeEnded{});
  EXPECT_EQ(written(actions), R"({"id":"cmpl-id","created":5,"model":"m","object":"text_completion","choices":[],)"
                              R"("usage":{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3,)"
                              R"("prompt_tokens_details":{"cached_tokens":3}}})"
                              "\n[DONE]\n");
  make(R"({"prompt":"hello","max_tokens":2,"stream":true,"stream_options":{"include_usage":true}})");
  stream_some();
  feed(DecodeEvent{R"({"id":"cmpl-id","choices":[{"index":0,"text":"","token_ids":[7],"finish_reason":"length"}]})"});
  feed(DecodeEvent{R"({"id":"cmpl-id","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}})"});
  actions = feed(DecodeEnded{});
  EXPECT_EQ(written(actions), "[DONE]\n") << "not twice";
  expect_no_charges();
}

TEST_F(Resume, AWholeAnswerKeepsTheLogprobsOfBothEngines) {
  make(R"({"prompt":"hello","max_tokens":7,"logprobs":0})");
  feed(Begin{});
  feed(offered());
  auto actions = feed(DecodeAnswered{
      answer(200, R"({"id":"cmpl-id","choices":[{"index":0,"text":"ab","stop_reason":"recomputed","token_ids":[5,6],)"
                  R"("prompt_token_ids":[1,2],"logprobs":{"tokens":["a","b"],"token_logprobs":[-1.0,-2.0]}}],)"
                  R"("kv_transfer_params":{"baton_seed":"ff"}})")});
  ASSERT_TRUE(find<CallPrefill>(actions));
  feed(offered());
  actions = feed(DecodeAnswered{answer(
      200,
      R"({"id":"cmpl-id-retry1","choices":[{"index":0,"text":"abc","token_ids":[5,6,7],"prompt_token_ids":[1,2],)"
      R"("logprobs":{"tokens":["c"],"token_logprobs":[-3.0]}}],"usage":{"prompt_tokens":2,"completion_tokens":3}})")});
  ASSERT_TRUE(find<Respond>(actions));
  const Json body = Json::parse(find<Respond>(actions)->response.body);
  EXPECT_EQ(body["id"], "cmpl-id");
  EXPECT_EQ(body["choices"][0]["text"], "abc");
  EXPECT_EQ(body["choices"][0]["logprobs"].dump(), R"({"tokens":["a","b","c"],"token_logprobs":[-1.0,-2.0,-3.0]})");
  EXPECT_EQ(fsm_->output_ids(), (std::vector<TokenId>{5, 6, 7}));
  expect_no_charges();
}

// vLLM-Ascend's engines: no word of a seed; prompt and outputs become a prompt, and the proxy joins the answers.
TEST_F(Resume, OtherEnginesGetTheHistoryAsAPromptAndTheRestOfTheBudget) {
  make(R"({"prompt":"hello","max_tokens":7,"min_tokens":3})");
  feed(Begin{});
  feed(prefilled());
  auto actions = feed(DecodeAnswered{answer(200, R"({"choices":[{"index":0,"text":"ab","stop_reason":"recomputed",)"
                                                 R"("token_ids":[5,6],"prompt_token_ids":[1,2]}]})")});
  Json body = Json::parse(find<CallPrefill>(actions)->body);
  EXPECT_EQ(body["prompt"].dump(), "[1,2,5,6]");
  EXPECT_EQ(body["max_tokens"], 1);
  actions = feed(prefilled());
  body = Json::parse(find<CallDecode>(actions)->body);
  EXPECT_EQ(body["prompt"].dump(), "[1,2,5,6]");
  EXPECT_EQ(body["max_tokens"], 5);
  EXPECT_EQ(body["min_tokens"], 1);
  actions = feed(DecodeAnswered{answer(200, R"({"choices":[{"index":0,"text":"c","token_ids":[7]}],)"
                                            R"("usage":{"prompt_tokens":4,"completion_tokens":1}})")});
  body = Json::parse(find<Respond>(actions)->response.body);
  EXPECT_EQ(body["choices"][0]["text"], "abc");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
}

TEST_F(Resume, AChatOfOtherEnginesKeepsItsMessagesAndOneRole) {
  make(R"({"messages":[{"role":"user","content":"q"}],"max_completion_tokens":9,"stream":true})",
       "/v1/chat/completions");
  feed(Begin{});
  feed(prefilled());
  feed(DecodeStreaming{});
  feed(DecodeEvent{
      R"({"id":"i","prompt_token_ids":[1],"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})"});
  feed(DecodeEvent{R"({"id":"i","choices":[{"index":0,"delta":{"content":"a"},"token_ids":[5]}]})"});
  auto actions = feed(DecodeEvent{R"({"choices":[{"index":0,"delta":{},"stop_reason":"recomputed"}]})"});
  ASSERT_TRUE(find<CallPrefill>(actions));
  actions = feed(prefilled());
  const Json body = Json::parse(find<CallDecode>(actions)->body);
  EXPECT_EQ(body["messages"][0]["content"], "q");
  EXPECT_EQ(body["kv_transfer_params"]["_vllm_ascend_recompute_token_ids"].dump(), "[1,5]");
  EXPECT_EQ(body["max_completion_tokens"], 8);
  feed(DecodeStreaming{});
  actions = feed(DecodeEvent{R"({"id":"j","choices":[{"index":0,"delta":{"role":"assistant","content":"b"}}]})"});
  EXPECT_EQ(Json::parse(written(actions)).dump(), R"({"id":"i","choices":[{"index":0,"delta":{"content":"b"}}]})");
}

TEST_F(Resume, WhatCantBeBroughtBackIsSaid) {
  make(R"({"prompt":["a","b"],"max_tokens":7,"stream":true})");
  feed(Begin{});
  feed(DecodeStreaming{});
  feed(DecodeEvent{R"({"choices":[{"index":0,"text":"a","token_ids":[1]}]})"});
  const auto actions = feed(DecodeEvent{kRecomputed});
  EXPECT_NE(written(actions).find("several prompts"), std::string::npos) << written(actions);
  EXPECT_TRUE(ends_with<Finish>(actions));
}

TEST_F(Resume, ABrokenStreamGoesOnAtAnotherDecodeEngine) {
  make(R"({"prompt":"hello","max_tokens":7,"stream":true})");
  stream_some();
  auto actions = feed(DecodeEnded{fail(Code::kUnavailable, "reset")});
  EXPECT_EQ(written(actions), "");
  ASSERT_TRUE(find<CallPrefill>(actions));
  actions = feed(offered());
  ASSERT_TRUE(find<CallDecode>(actions));
  EXPECT_EQ(Json::parse(find<CallDecode>(actions)->body)["kv_transfer_params"]["baton_resume_output_count"], 2);
  // A second failure before anything new is an attempt like any other.
  actions = feed(DecodeAnswered{answer(500, "{}")});
  EXPECT_TRUE(find<CallPrefill>(actions) || find<Delay>(actions));
}

TEST_F(Resume, WithoutAKnownSeedABrokenStreamIsSaid) {
  for (const char* sampling : {R"("temperature":1)", R"("temperature":0)"}) {
    make(R"({"prompt":"hello","max_tokens":7,"stream":true,)" + std::string(sampling) + "}");
    feed(Begin{});
    feed(PrefillAnswered{answer(200, R"({"kv_transfer_params":{"baton_offer_id":"ab"}})")});
    feed(DecodeStreaming{});
    feed(DecodeEvent{R"({"choices":[{"index":0,"text":"a","token_ids":[1],"prompt_token_ids":[9]}]})"});
    const auto actions = feed(DecodeEnded{fail(Code::kUnavailable, "reset")});
    const bool goes_on = find<CallPrefill>(actions) != nullptr;
    EXPECT_EQ(goes_on, std::string_view(sampling).ends_with("0"));
    EXPECT_EQ(written(actions).empty(), goes_on);
  }
}

TEST_F(Resume, AClientThatLeavesBetweenTheTwoEnginesFreesBoth) {
  make(R"({"prompt":"hello","max_tokens":7,"stream":true})");
  stream_some();
  feed(DecodeEvent{kRecomputed});
  feed(offered());
  const auto actions = feed(ClientGone{});
  ASSERT_TRUE(find<AbortPrefill>(actions));
  EXPECT_EQ(find<AbortPrefill>(actions)->request_id, "id-retry1");
  expect_no_charges();
}

class DecodeFirstTest : public FsmTest {
 protected:
  void make_first(std::string body) {
    make(std::move(body), "/v1/completions", 3, DecodeFirst{.metaserver = "http://h:1/v1/metaserver", .key = "k"});
  }
  std::vector<Action> metaserver(std::string key = "k-1") {
    return feed(MetaserverCalled{std::move(key), {{"remote_host", "d"}, {"request_id", "cmpl-id-0"}, {"x", 1}}});
  }
};
constexpr auto kBody = R"({"prompt":"hello","max_tokens":7,"stream":true,"temperature":0})";

TEST_F(DecodeFirstTest, DStartsCallsTheMetaserverAndPIsAskedAtItsSide) {
  make_first(kBody);
  auto actions = feed(Begin{});
  ASSERT_TRUE(ends_with<CallDecode>(actions));
  EXPECT_EQ(find<CallDecode>(actions)->request_id, "id");
  Json body = Json::parse(find<CallDecode>(actions)->body);
  EXPECT_EQ(body["kv_transfer_params"].dump(),
            R"({"do_remote_decode":false,"do_remote_prefill":true,"metaserver":"http://h:1/v1/metaserver?key=k-1"})");
  EXPECT_EQ(body["max_tokens"], 7);
  actions = metaserver();
  ASSERT_TRUE(ends_with<CallPrefill>(actions));
  EXPECT_EQ(find<CallPrefill>(actions)->request_id, "id");
  body = Json::parse(find<CallPrefill>(actions)->body);
  EXPECT_EQ(body["kv_transfer_params"].dump(), R"({"remote_host":"d","request_id":"cmpl-id-0","x":1})");
  EXPECT_EQ(body["max_tokens"], 1);
  EXPECT_EQ(body["min_tokens"], 1);
  EXPECT_EQ(body["stream"], false);
  EXPECT_GT(at(p_[0]).active_tokens, 0);
  EXPECT_GT(at(p_[0]).active_kv, 0);
  feed(DecodeStreaming{});
  actions = feed(PrefillAnswered{answer(200, R"({"usage":{"prompt_tokens_details":{"cached_tokens":2}}})")});
  ASSERT_TRUE(ends_with<AnswerMetaserver>(actions));
  EXPECT_EQ(find<AnswerMetaserver>(actions)->status, 200);
  EXPECT_EQ(at(p_[0]).active_tokens, 0);
  EXPECT_EQ(at(p_[0]).active_kv, 0);
  feed(DecodeEvent{R"({"choices":[{"index":0,"text":"a","token_ids":[1]}]})"});
  feed(DecodeEvent{"[DONE]"});
  EXPECT_EQ(fsm_->summary().status, 200);
  EXPECT_TRUE(fsm_->summary().handed_off);
  EXPECT_EQ(fsm_->summary().cached_tokens, 2);
  expect_no_charges();
}

TEST_F(DecodeFirstTest, AnotherPIsAskedAndWhenNoneIsLeftDIsTold) {
  make_first(kBody);
  feed(Begin{});
  auto actions = metaserver();
  const auto first = find<CallPrefill>(actions)->instance;
  actions = feed(PrefillAnswered{fail(Code::kUnavailable, "refused")});
  ASSERT_TRUE(ends_with<CallPrefill>(actions));
  EXPECT_NE(find<CallPrefill>(actions)->instance, first);
  actions = feed(PrefillAnswered{answer(500, "{}")});
  ASSERT_TRUE(ends_with<AnswerMetaserver>(actions));
  EXPECT_EQ(find<AnswerMetaserver>(actions)->status, 502);
  // D computes the prompt itself: the client's answer is whole.
  feed(DecodeStreaming{});
  feed(DecodeEvent{R"({"choices":[{"index":0,"text":"a","token_ids":[1]}]})"});
  feed(DecodeEvent{"[DONE]"});
  EXPECT_EQ(fsm_->summary().status, 200);
  expect_no_charges();
}

TEST_F(DecodeFirstTest, StrangersAndLateCallsAreNobodys) {
  make_first(kBody);
  feed(Begin{});
  EXPECT_EQ(find<AnswerMetaserver>(metaserver("k"))->status, 404);
  EXPECT_EQ(find<AnswerMetaserver>(metaserver("k-0"))->status, 404);
  auto actions = feed(DecodeAnswered{fail(Code::kUnavailable, "reset")});
  ASSERT_TRUE(ends_with<CallDecode>(actions));
  EXPECT_EQ(find<CallDecode>(actions)->request_id, "id-retry1");
  EXPECT_EQ(find<CallDecode>(actions)->instance, d_[1]);
  EXPECT_EQ(find<AnswerMetaserver>(metaserver("k-1"))->status, 404) << "of the engine that was given up";
  EXPECT_TRUE(ends_with<CallPrefill>(metaserver("k-2")));
}

TEST_F(DecodeFirstTest, AFailedDAndALeavingClientEndThePrefillToo) {
  for (const Event& end : {Event(DecodeAnswered{answer(500, "{}")}), Event(ClientGone{})}) {
    make_first(kBody);
    feed(Begin{});
    metaserver();
    const auto actions = feed(end);
    EXPECT_TRUE(find<DropPrefill>(actions));
    ASSERT_TRUE(find<AbortPrefill>(actions));
    EXPECT_EQ(find<AbortPrefill>(actions)->request_id, "id");
    EXPECT_EQ(at(p_[0]).active_tokens, 0);
    fsm_.reset();
    expect_no_charges();
    for (auto id : d_) instances_.note(id, Outcome::kOk, now_);
  }
}

TEST_F(DecodeFirstTest, ARecomputedRequestStartsAtDAgainWithItsTokens) {
  make_first(kBody);
  feed(Begin{});
  metaserver();
  feed(PrefillAnswered{answer(200, "{}")});
  feed(DecodeStreaming{});
  feed(DecodeEvent{R"({"choices":[{"index":0,"text":"a","token_ids":[5],"prompt_token_ids":[1,2]}]})"});
  auto actions = feed(DecodeEvent{kRecomputed});
  ASSERT_TRUE(ends_with<CallDecode>(actions));
  const Json d = Json::parse(find<CallDecode>(actions)->body)["kv_transfer_params"];
  EXPECT_EQ(d["metaserver"], "http://h:1/v1/metaserver?key=k-2");
  EXPECT_EQ(d["_vllm_ascend_recompute_token_ids"].dump(), "[1,2,5]");
  actions = metaserver("k-2");
  const Json p = Json::parse(find<CallPrefill>(actions)->body);
  EXPECT_EQ(p["kv_transfer_params"]["_vllm_ascend_recompute_token_ids"].dump(), "[1,2,5]");
  EXPECT_EQ(p["kv_transfer_params"]["remote_host"], "d");
  EXPECT_EQ(p["max_tokens"], 2);
}

}  // namespace
}  // namespace baton::proxy
