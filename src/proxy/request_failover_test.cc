// A decode engine that is lost amid an answer: what the client sees, and what it must never see.
#include "proxy/fsm_test_support.h"

namespace baton::proxy {
namespace {

constexpr auto kOffer = R"({"kv_transfer_params":{"baton_offer_id":"ab","baton_seed":"00000000000000ff"}})";
constexpr auto kFirst = R"({"id":"cmpl-id","object":"o","created":5,"model":"m","choices":[{"index":0,"text":"ab",)"
                        R"("finish_reason":null,"prompt_token_ids":[1,2],"token_ids":[5,6]}]})";
constexpr auto kSeedless = R"({"prompt":"hello","max_tokens":7,"stream":true})";
constexpr auto kSeed = "0123456789abcdef";

DecodeEnded broken() { return {fail(Code::kUnavailable, "reset")}; }

class FailOver : public FsmTest {
 protected:
  void make_drawing(std::string body, std::string path = "/v1/completions") {
    fsm_ = std::make_unique<RequestFsm>(plan_request(std::move(path), std::move(body)).value(), "id",
                                        RetryPolicy{.resume_wait = 2s}, instances_, std::nullopt, kSeed);
  }
  void stream_some(std::string body, std::string path = "/v1/completions") {
    make_drawing(std::move(body), std::move(path));
    feed(Begin{});
    feed(PrefillAnswered{answer(200, kOffer)});
    feed(DecodeStreaming{});
  }
  void lose(InstanceId id) { instances_.note_probe(id, Outcome::kUnreachable, now_); }
  static Json params_of(const std::vector<Action>& actions) {
    const auto* call = find<CallDecode>(actions);
    return call ? Json::parse(call->body).value("kv_transfer_params", Json()) : Json();
  }
};

TEST_F(FailOver, AStreamPausesUntilADecodeEngineIsBack) {
  lose(d_[1]);
  stream_some(kSeedless);
  feed(DecodeEvent{kFirst});
  auto actions = feed(broken());
  EXPECT_TRUE(ends_with<Delay>(actions));
  lose(d_[0]);
  for (int i = 0; i < 10; ++i) {
    now_ += 100ms;
    EXPECT_TRUE(ends_with<Delay>(feed(DelayOver{})));
  }
  instances_.note_probe(d_[0], Outcome::kOk, now_);
  actions = feed(DelayOver{});
  ASSERT_TRUE(find<CallPrefill>(actions));
  EXPECT_EQ(params_of(feed(PrefillAnswered{answer(200, kOffer)}))["baton_resume_output_count"], 2);
}

TEST_F(FailOver, ThePauseEndsWithAnErrorThatSaysWhy) {
  lose(d_[1]);
  stream_some(kSeedless);
  feed(DecodeEvent{kFirst});
  feed(broken());
  lose(d_[0]);
  now_ += 2s;
  const auto actions = feed(DelayOver{});
  EXPECT_NE(written(actions).find("reset"), std::string::npos) << written(actions);
  EXPECT_TRUE(written(actions).ends_with("[DONE]\n"));
  EXPECT_TRUE(ends_with<Finish>(actions));
  expect_no_charges();
}

TEST_F(FailOver, DecodeLostWhileTheStreamIsPrefilledAgainIsAPauseToo) {
  lose(d_[1]);
  stream_some(kSeedless);
  feed(DecodeEvent{kFirst});
  instances_.note_probe(d_[1], Outcome::kOk, now_);
  ASSERT_TRUE(find<CallPrefill>(feed(broken())));
  for (auto id : d_) lose(id);
  EXPECT_TRUE(ends_with<Delay>(feed(PrefillAnswered{answer(200, kOffer)})));
  instances_.note_probe(d_[1], Outcome::kOk, now_);
  EXPECT_TRUE(find<CallPrefill>(feed(DelayOver{})));
}

TEST_F(FailOver, WhatAnEngineLetsGoAsItStopsGoesOnElsewhere) {
  stream_some(kSeedless);
  feed(DecodeEvent{kFirst});
  auto actions = feed(DecodeEvent{R"({"choices":[{"index":0,"text":"","finish_reason":"abort","token_ids":[]}]})"});
  EXPECT_EQ(written(actions), "");
  EXPECT_TRUE(find<CallPrefill>(actions));
  EXPECT_EQ(at(d_[0]).health, Health::kSuspect) << "until a probe says more";
  feed(ClientGone{});
  make_drawing(R"({"prompt":"hello"})");
  feed(Begin{});
  feed(PrefillAnswered{answer(200, kOffer)});
  actions = feed(DecodeAnswered{answer(200, R"({"choices":[{"index":0,"text":"a","finish_reason":"abort"}]})")});
  EXPECT_FALSE(find<Respond>(actions));
}

TEST_F(FailOver, ARequestThatBreaksEveryEngineIsGivenUp) {
  stream_some(kSeedless);
  feed(DecodeEvent{kFirst});
  auto actions = feed(DecodeEvent{R"({"error":{"message":"the engine has stopped","code":500}})"});
  int calls = 0;
  for (int i = 0; i < 20 && !ends_with<Finish>(actions); ++i) {
    now_ += 1ms;
    if (find<CallPrefill>(actions)) {
      actions = feed(PrefillAnswered{answer(200, kOffer)});
    } else if (find<CallDecode>(actions)) {
      ++calls;
      actions = feed(DecodeAnswered{answer(500, "{}")});
    } else {
      for (auto id : d_) instances_.note_probe(id, Outcome::kOk, now_);
      actions = feed(DelayOver{});
    }
  }
  EXPECT_TRUE(ends_with<Finish>(actions));
  EXPECT_EQ(calls, 3);
  EXPECT_NE(written(actions).find("error"), std::string::npos);
}

// Several chunks of one token: were the first of them out and the last lost, what goes on would say the first again.
TEST_F(FailOver, ChunksOfOneTokenLeaveTogetherOrNotAtAll) {
  stream_some(R"({"messages":[],"max_tokens":7,"stream":true})", "/v1/chat/completions");
  const auto chunk = [](std::string delta, std::string ids) {
    return DecodeEvent{
        R"({"id":"chatcmpl-id","created":5,"model":"m","prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{)" +
        delta + R"(},"finish_reason":null,"token_ids":)" + ids + "}]}"};
  };
  auto actions = feed(chunk(R"("role":"assistant","content":"")", "[]"));
  EXPECT_EQ(written(actions), "");
  actions = feed(broken());
  const auto* p = find<CallPrefill>(actions);
  ASSERT_TRUE(p) << "nothing has been said: it starts again";
  EXPECT_EQ(p->body.find("baton_resume_output_count"), std::string::npos);
  feed(PrefillAnswered{answer(200, kOffer)});
  feed(DecodeStreaming{});
  feed(chunk(R"("role":"assistant","content":"")", "[]"));
  actions = feed(chunk(R"("content":"x")", "[7]"));
  EXPECT_NE(written(actions).find("assistant"), std::string::npos);
  EXPECT_NE(written(actions).find("\"x\""), std::string::npos);
  feed(chunk(R"("reasoning":"end")", "[]"));
  std::string passed;
  EXPECT_FALSE(fsm_->pass(chunk(R"("content":"y")", "[8]").data, passed)) << "something is held before it";
  actions = feed(broken());
  EXPECT_EQ(fsm_->output_ids(), (std::vector<TokenId>{7}));
  EXPECT_EQ(written(actions), "");
}

TEST_F(FailOver, WhatOnlyLacksItsEndIsEndedByTheProxy) {
  for (const bool usage : {false, true}) {
    stream_some(usage ? R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})" : kSeedless);
    feed(DecodeEvent{kFirst});
    feed(DecodeEvent{R"({"choices":[{"index":0,"text":"c","finish_reason":"stop","token_ids":[7]}]})"});
    const auto actions = feed(broken());
    EXPECT_TRUE(ends_with<Finish>(actions));
    const auto end = R"({"id":"cmpl-id","object":"o","created":5,"model":"m","choices":[],"usage":)"
                     R"({"prompt_tokens":2,"total_tokens":5,"completion_tokens":3}})";
    EXPECT_EQ(written(actions), usage ? std::string(end) + "\n[DONE]\n" : "[DONE]\n");
    expect_no_charges();
  }
}

TEST_F(FailOver, WithoutPrefillEnginesTheSeedIsTheProxysAndTheStreamGoesOn) {
  for (auto id : p_) lose(id);
  make_drawing(kSeedless);
  EXPECT_TRUE(params_of(feed(Begin{})).is_null()) << "others' engines would not know it";
  feed(ClientGone{});
  for (auto id : d_) instances_.note_probe(id, Outcome::kOk, now_, /*baton=*/true);
  make_drawing(kSeedless);
  auto params = params_of(feed(Begin{}));
  EXPECT_EQ(params["baton_seed"], kSeed);
  EXPECT_EQ(params.size(), 1u);
  feed(DecodeStreaming{});
  feed(DecodeEvent{kFirst});
  params = params_of(feed(broken()));
  EXPECT_EQ(params["baton_seed"], kSeed);
  EXPECT_EQ(params["baton_resume_output_count"], 2);
  feed(ClientGone{});
  make_drawing(R"({"prompt":"hello","stream":true,"temperature":0})");
  EXPECT_TRUE(params_of(feed(Begin{})).is_null()) << "nothing is drawn";
}

// The first P has drawn the seed and died; the D that serves alone must not draw another that nobody knows of.
TEST_F(FailOver, ASeedThatWasDrawnIsKept) {
  for (auto id : d_) instances_.note_probe(id, Outcome::kOk, now_, /*baton=*/true);
  make_drawing(kSeedless);
  feed(Begin{});
  feed(PrefillAnswered{answer(200, kOffer)});
  for (auto id : p_) lose(id);
  EXPECT_EQ(params_of(feed(DecodeAnswered{answer(500, "{}")}))["baton_seed"], "00000000000000ff");
}

TEST_F(FailOver, ARefusalAfterTheFirstByteIsAnErrorEvent) {
  stream_some(kSeedless);
  feed(DecodeEvent{kFirst});
  feed(broken());
  const auto actions = feed(PrefillAnswered{answer(400, R"({"error":{"message":"too long","code":400}})")});
  EXPECT_FALSE(find<Respond>(actions));
  EXPECT_NE(written(actions).find("too long"), std::string::npos);
  EXPECT_TRUE(written(actions).ends_with("[DONE]\n"));
}

TEST_F(FailOver, A200WithoutAChoiceIsAFailure) {
  for (const char* body : {"{}", R"({"choices":[]})", R"({"choices":[1]})", "[]", ""}) {
    make(R"({"prompt":"hello"})");
    feed(Begin{});
    feed(prefilled());
    EXPECT_FALSE(find<Respond>(feed(DecodeAnswered{answer(200, body)}))) << body;
    feed(ClientGone{});
  }
}

TEST_F(FailOver, AStoppedEngineIsNotABusyOne) {
  lose(p_[1]);
  instances_.note_probe(p_[0], Outcome::kOk, now_, /*baton=*/true);
  make(R"({"prompt":"hello"})");
  feed(Begin{});
  net::HttpResponse stopped = answer(503, R"({"error":{"message":"the engine has stopped","code":503}})");
  stopped.headers.add("Retry-After", "1");
  auto actions = feed(PrefillAnswered{stopped});
  for (int i = 0; i < 5 && !find<CallDecode>(actions); ++i)
    actions = find<Delay>(actions) ? feed(DelayOver{}) : feed(PrefillAnswered{stopped});
  EXPECT_TRUE(find<CallDecode>(actions)) << "decode can do without";
}

}  // namespace
}  // namespace baton::proxy
