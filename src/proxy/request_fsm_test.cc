#include "proxy/request_fsm.h"

#include "proxy/fsm_test_support.h"

namespace baton::proxy {
namespace {

using namespace std::chrono_literals;

using Fsm = FsmTest;

constexpr auto kStream =
    R"({"model":"m","prompt":"hello","max_tokens":7,"stream":true,"stream_options":{"include_usage":false}})";
constexpr auto kWhole = R"({"model":"m","prompt":"hello","max_tokens":7,"max_completion_tokens":9})";

TEST_F(Fsm, PrefillAndDecodeBodiesAreTheProtocols) {
  make(kWhole);
  const auto begin = feed(Begin{});
  const auto* p = find<CallPrefill>(begin);
  ASSERT_TRUE(p && ends_with<CallPrefill>(begin));
  EXPECT_EQ(p->request_id, "id");
  const Json body = Json::parse(p->body);
  EXPECT_EQ(body["max_tokens"], 1);
  EXPECT_EQ(body["min_tokens"], 1);
  EXPECT_EQ(body["max_completion_tokens"], 1);
  EXPECT_EQ(body["stream"], false);
  EXPECT_EQ(body["kv_transfer_params"].dump(),
            R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,)"
            R"("remote_host":null,"remote_port":null})");
  const auto next = feed(prefilled());
  const auto* d = find<CallDecode>(next);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->request_id, "id");
  const Json to_d = Json::parse(d->body);
  EXPECT_EQ(to_d["kv_transfer_params"].dump(), kParams);
  EXPECT_EQ(to_d["max_tokens"], 7);
  EXPECT_EQ(to_d["return_token_ids"], true);
  EXPECT_FALSE(to_d.contains("stream_options"));
  make(kStream);
  const auto streamed = feed(Begin{});
  const Json second = Json::parse(find<CallPrefill>(streamed)->body);
  EXPECT_FALSE(second.contains("stream_options"));
  EXPECT_FALSE(second.contains("max_completion_tokens"));
  const auto decode = feed(prefilled());
  EXPECT_EQ(Json::parse(find<CallDecode>(decode)->body)["stream_options"]["include_usage"], true);
}

TEST_F(Fsm, StreamIsAdaptedAndChargesEnd) {
  make(kStream);
  to_streaming(R"(,"usage":{"prompt_tokens_details":{"cached_tokens":3}})");
  EXPECT_GT(at(p_[0]).active_kv, 0);
  auto actions =
      feed(DecodeEvent{R"({"choices":[{"index":0,"text":"ab","prompt_token_ids":[1,2],"token_ids":[5,6]}]})"});
  EXPECT_EQ(written(actions), R"({"choices":[{"index":0,"text":"ab","prompt_token_ids":null,"token_ids":null}]})"
                              "\n");
  EXPECT_EQ(at(p_[0]).active_kv, 0);
  // The usage chunk is the proxy's own wish: read, not passed on.
  actions = feed(DecodeEvent{R"({"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2}})"});
  EXPECT_EQ(written(actions), "");
  actions = feed(DecodeEvent{"[DONE]"});
  EXPECT_EQ(written(actions), "[DONE]\n");
  EXPECT_TRUE(find<EndStream>(actions) && ends_with<Finish>(actions));
  EXPECT_EQ(fsm_->prompt_ids(), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(fsm_->output_ids(), (std::vector<TokenId>{5, 6}));
  // Two tokens in one chunk: counted by usage, not by chunks.
  EXPECT_EQ(fsm_->summary().completion_tokens, 2);
  EXPECT_EQ(fsm_->summary().status, 200);
  expect_no_charges();
}

TEST_F(Fsm, CachedTokensAreThePrefillEnginesOnlyWhenItSaysThem) {
  for (const bool given : {true, false}) {
    make(kWhole);
    feed(Begin{});
    feed(prefilled(given ? R"(,"usage":{"prompt_tokens_details":{"cached_tokens":3}})"
                         : R"(,"usage":{"prompt_tokens_details":null})"));
    auto actions = feed(DecodeAnswered{answer(
        200, R"({"choices":[{"text":"x"}],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}})")});
    const Json body = Json::parse(find<Respond>(actions)->response.body);
    EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], given ? 3 : 8);
  }
}

TEST_F(Fsm, DeadPrefillEngineIsPassedOver) {
  make(kStream);
  feed(Begin{});
  auto actions = feed(PrefillAnswered{fail(Code::kUnavailable, "refused")});
  ASSERT_TRUE(find<CallPrefill>(actions));
  EXPECT_EQ(find<CallPrefill>(actions)->instance, p_[1]);
  EXPECT_EQ(find<CallPrefill>(actions)->request_id, "id-retry1");
  EXPECT_EQ(at(p_[0]).health, Health::kDown);
  // The next request does not try the dead one, whatever its load.
  EXPECT_EQ(instances_.pick(Role::kPrefill, now_, {}), p_[1]);
}

TEST_F(Fsm, WithoutAnyPrefillEngineDecodeServesAlone) {
  make(kWhole);
  feed(Begin{});
  feed(PrefillAnswered{fail(Code::kUnavailable, "refused")});
  auto actions = feed(PrefillAnswered{fail(Code::kUnavailable, "refused")});
  ASSERT_TRUE(find<CallDecode>(actions));
  EXPECT_FALSE(Json::parse(find<CallDecode>(actions)->body).contains("kv_transfer_params"));
  actions = feed(DecodeAnswered{answer(200, R"({"choices":[{"text":"x"}]})")});
  EXPECT_EQ(find<Respond>(actions)->response.status, 200);
  EXPECT_TRUE(fsm_->summary().colocated);
  expect_no_charges();
}

TEST_F(Fsm, HungPrefillEngineIsToldToDropAndAnotherServes) {
  make(kWhole);
  feed(Begin{});
  auto actions = feed(PrefillAnswered{fail(Code::kDeadlineExceeded, "slow")});
  ASSERT_TRUE(find<AbortPrefill>(actions) && find<CallPrefill>(actions));
  EXPECT_EQ(find<AbortPrefill>(actions)->request_id, "id");
  EXPECT_EQ(find<AbortPrefill>(actions)->instance, p_[0]);
}

TEST_F(Fsm, ClientsOwnMistakeIsPassedThroughOnce) {
  make(kWhole);
  feed(Begin{});
  auto actions = feed(PrefillAnswered{answer(400, R"({"error":{"message":"maximum context length is 5 tokens"}})")});
  EXPECT_EQ(find<Respond>(actions)->response.status, 400);
  EXPECT_NE(find<Respond>(actions)->response.body.find("maximum context length"), std::string::npos);
  EXPECT_TRUE(ends_with<Finish>(actions));
  EXPECT_FALSE(find<CallPrefill>(actions));
  expect_no_charges();
}

TEST_F(Fsm, DecodeFailureBeforeTheFirstByteStartsAgainElsewhereWithANewPrefill) {
  const Event failures[] = {DecodeAnswered{fail(Code::kUnavailable, "reset")}, DecodeAnswered{answer(500, "{}")},
                            DecodeAnswered{answer(200, "")},
                            DecodeAnswered{answer(200, R"({"error":{"message":"x"}})")}};
  for (const auto& failure : failures) {
    make(kWhole);
    feed(Begin{});
    feed(prefilled());
    auto actions = feed(failure);
    ASSERT_TRUE(find<AbortPrefill>(actions));
    EXPECT_EQ(find<AbortPrefill>(actions)->request_id, "id");
    ASSERT_TRUE(find<CallPrefill>(actions));
    EXPECT_EQ(find<CallPrefill>(actions)->request_id, "id-retry1");
    actions = feed(prefilled());
    ASSERT_TRUE(find<CallDecode>(actions));
    EXPECT_EQ(find<CallDecode>(actions)->instance, d_[1]);
    actions = feed(DecodeAnswered{answer(200, R"({"choices":[{"text":"x"}]})")});
    EXPECT_EQ(find<Respond>(actions)->response.status, 200);
    expect_no_charges();
    instances_.note_probe(d_[0], Outcome::kOk, now_);
    instances_.note(d_[0], Outcome::kOk, now_);
  }
}

TEST_F(Fsm, AStreamThatEndsBeforeItsFirstEventIsNeverAnEmpty200) {
  for (const Event& end :
       {Event(DecodeEnded{}), Event(DecodeEnded{fail(Code::kDataLoss, "cut")}), Event(DecodeEvent{"[DONE]"}),
        Event(DecodeEvent{"not json"}), Event(DecodeEvent{R"({"error":{"message":"boom"}})"})}) {
    make(kStream, "/v1/completions", 1);
    to_streaming();
    auto actions = feed(end);
    ASSERT_TRUE(find<Respond>(actions)) << "nothing was answered";
    EXPECT_EQ(find<Respond>(actions)->response.status, 502);
    EXPECT_TRUE(Json::accept(find<Respond>(actions)->response.body));
    EXPECT_FALSE(find<WriteEvent>(actions));
    expect_no_charges();
    for (auto id : d_) instances_.note(id, Outcome::kOk, now_);
  }
}

TEST_F(Fsm, AfterTheFirstByteAFailureIsAnErrorEventAndDone) {
  for (const Event& end : {Event(DecodeEnded{}), Event(DecodeEnded{fail(Code::kUnavailable, "reset")}),
                           Event(DecodeEvent{R"({"choices":[{"index":0,"stop_reason":"recomputed"}]})"})}) {
    make(kStream);
    to_streaming();
    feed(DecodeEvent{R"({"choices":[{"index":0,"text":"a"}]})"});
    auto actions = feed(end);
    const std::string said = written(actions);
    EXPECT_TRUE(said.starts_with(R"({"error":{"message":)")) << said;
    EXPECT_TRUE(said.ends_with("\n[DONE]\n"));
    EXPECT_EQ(said.find("recomputed"), std::string::npos);
    EXPECT_TRUE(find<EndStream>(actions) && ends_with<Finish>(actions));
    EXPECT_FALSE(find<CallPrefill>(actions));
    EXPECT_TRUE(fsm_->summary().cut_after_first_byte);
    expect_no_charges();
    for (auto id : d_) instances_.note_probe(id, Outcome::kOk, now_);
  }
}

TEST_F(Fsm, RetriesAreBoundedAndTheLastErrorIsTold) {
  instances_.remove(Role::kDecode, "d", 1);
  make(kWhole);
  auto actions = feed(Begin{});
  int decodes = 0;
  for (int i = 0; i < 50 && !ends_with<Finish>(actions); ++i) {
    if (ends_with<CallPrefill>(actions)) {
      actions = feed(prefilled());
    } else if (ends_with<CallDecode>(actions)) {
      ++decodes;
      actions = feed(DecodeAnswered{answer(503, R"({"error":"busy"})")});
    } else {
      ASSERT_TRUE(ends_with<Delay>(actions));
      actions = feed(DelayOver{});
    }
  }
  EXPECT_EQ(decodes, 3);
  ASSERT_TRUE(find<Respond>(actions));
  EXPECT_EQ(find<Respond>(actions)->response.status, 503);
  EXPECT_TRUE(find<Respond>(actions)->response.headers.get("Retry-After"));
  expect_no_charges();
}

TEST_F(Fsm, NoDecodeEngineIs503BeforeAnyPrefill) {
  for (auto id : d_) instances_.note_probe(id, Outcome::kUnreachable, now_);
  make(kWhole);
  auto actions = feed(Begin{});
  EXPECT_FALSE(find<CallPrefill>(actions));
  EXPECT_EQ(find<Respond>(actions)->response.status, 503);
}

TEST_F(Fsm, ClientThatGoesFreesBothSides) {
  make(kStream);
  feed(Begin{});
  auto actions = feed(ClientGone{});  // P is computing
  EXPECT_TRUE(find<AbortPrefill>(actions) && ends_with<Finish>(actions));
  expect_no_charges();
  make(kStream);
  feed(Begin{});
  feed(prefilled());
  actions = feed(ClientGone{});  // D was called, and has not answered
  EXPECT_TRUE(find<AbortPrefill>(actions) && find<DropDecode>(actions));
  expect_no_charges();
  make(kStream);
  to_streaming();
  feed(DecodeEvent{R"({"choices":[{"index":0,"text":"a"}]})"});
  actions = feed(ClientGone{});  // D has the KV: it is D's to free
  EXPECT_TRUE(find<DropDecode>(actions));
  EXPECT_FALSE(find<AbortPrefill>(actions));
  EXPECT_EQ(fsm_->summary().status, 499);
  expect_no_charges();
}

TEST_F(Fsm, WhatAHandOffCannotCarryGoesStraightToDecode) {
  for (const char* body :
       {R"({"prompt":["a","b"]})", R"({"prompt":[[1],[2]]})", R"({"prompt":"a","n":2})",
        R"({"prompt":"a","best_of":2})", R"({"prompt":"a","prompt_logprobs":0})",
        R"({"prompt":"a","echo":true,"max_tokens":0})", R"({"prompt":"a","use_beam_search":true})"}) {
    make(body);
    auto actions = feed(Begin{});
    ASSERT_TRUE(find<CallDecode>(actions)) << body;
    EXPECT_FALSE(Json::parse(find<CallDecode>(actions)->body).contains("kv_transfer_params"));
  }
  for (const char* body : {R"({"prompt":["a"]})", R"({"prompt":[1,2,3]})", R"({"prompt":"a","n":1})"}) {
    make(body);
    const auto actions = feed(Begin{});
    EXPECT_TRUE(find<CallPrefill>(actions)) << body;
  }
}

TEST_F(Fsm, WhatIsAboutTheRequestPassesOnceAndLeavesHealthAlone) {
  for (const int status : {400, 401, 404, 409, 413, 415, 422, 501}) {
    for (const bool at_prefill : {true, false}) {
      make(kWhole);
      feed(Begin{});
      net::HttpResponse refusal = answer(status, R"({"error":{"message":"not in this version"}})");
      std::vector<Action> actions;
      if (at_prefill) {
        actions = feed(PrefillAnswered{refusal});
      } else {
        feed(prefilled());
        actions = feed(DecodeAnswered{refusal});
      }
      ASSERT_TRUE(find<Respond>(actions) && ends_with<Finish>(actions)) << status;
      EXPECT_EQ(find<Respond>(actions)->response.status, status);
      EXPECT_EQ(find<Respond>(actions)->response.body, refusal.body);
      expect_no_charges();
    }
  }
  for (auto id : {p_[0], p_[1], d_[0], d_[1]}) {
    EXPECT_EQ(at(id).health, Health::kUp);
    EXPECT_EQ(at(id).failures, 0);
    EXPECT_FALSE(at(id).open_until);
  }
  // Nor does it hide that an engine fails.
  instances_.note(d_[0], Outcome::kFailed, now_);
  make(kWhole);
  feed(Begin{});
  feed(prefilled());
  feed(DecodeAnswered{answer(501, "{}")});
  EXPECT_EQ(at(d_[0]).failures, 1);
}

TEST_F(Fsm, AnErrorAboutTheRequestInsideA200PassesOnce) {
  make(kStream);
  to_streaming();
  auto actions = feed(DecodeEvent{R"({"error":{"message":"no","code":400}})"});
  ASSERT_TRUE(find<Respond>(actions) && ends_with<Finish>(actions));
  EXPECT_EQ(find<Respond>(actions)->response.status, 400);
  EXPECT_TRUE(find<DropDecode>(actions));
  make(kWhole);
  feed(Begin{});
  feed(prefilled());
  actions = feed(DecodeAnswered{answer(200, R"({"error":{"message":"no","code":501}})")});
  ASSERT_TRUE(find<Respond>(actions) && ends_with<Finish>(actions));
  EXPECT_EQ(find<Respond>(actions)->response.status, 501);
  expect_no_charges();
  EXPECT_EQ(at(d_[0]).failures, 0);
}

TEST_F(Fsm, ABusyEngineIsPassedOverAndWhenAllAreBusyTheClientHearsIt) {
  for (const int status : {429, 503, 408}) {
    net::HttpResponse busy = answer(status, R"({"error":{"message":"queue full"}})");
    busy.headers.add("Retry-After", "7");
    for (const bool at_prefill : {true, false}) {
      make(kWhole);
      auto actions = feed(Begin{});
      for (int i = 0; i < 2; ++i) {
        if (at_prefill) {
          ASSERT_TRUE(ends_with<CallPrefill>(actions)) << status;
          actions = feed(PrefillAnswered{busy});
        } else {
          ASSERT_TRUE(ends_with<CallPrefill>(actions)) << status;
          feed(prefilled());
          actions = feed(DecodeAnswered{busy});
        }
      }
      ASSERT_TRUE(find<Respond>(actions) && ends_with<Finish>(actions)) << status;
      EXPECT_EQ(find<Respond>(actions)->response.status, status);
      EXPECT_EQ(find<Respond>(actions)->response.headers.get("Retry-After"), "7");
      EXPECT_EQ(find<Respond>(actions)->response.body, busy.body);
      expect_no_charges();
    }
  }
  for (auto id : {p_[0], p_[1], d_[0], d_[1]}) EXPECT_EQ(at(id).failures, 0);
  // Without Retry-After and in plain text it is told just the same.
  instances_.remove(Role::kDecode, "d", 1);
  make(kWhole);
  feed(Begin{});
  feed(prefilled());
  const auto actions = feed(DecodeAnswered{answer(429, "busy")});
  ASSERT_TRUE(find<Respond>(actions) && ends_with<Finish>(actions));
  EXPECT_EQ(find<Respond>(actions)->response.status, 429);
  EXPECT_TRUE(find<Respond>(actions)->response.headers.get("Retry-After"));
}

TEST_F(Fsm, ARetryAtDecodeHasAFreshIdAndTheClientItsOwn) {
  instances_.remove(Role::kDecode, "d", 1);
  make(R"({"prompt":["a","b"]})");
  auto actions = feed(Begin{});
  ASSERT_TRUE(find<CallDecode>(actions));
  EXPECT_EQ(find<CallDecode>(actions)->request_id, "id");
  actions = feed(DecodeAnswered{answer(500, "{}")});
  ASSERT_TRUE(ends_with<Delay>(actions));
  actions = feed(DelayOver{});
  ASSERT_TRUE(find<CallDecode>(actions));
  EXPECT_EQ(find<CallDecode>(actions)->request_id, "id-retry1");
  actions = feed(DecodeAnswered{answer(200, R"({"id":"cmpl-id-retry1","choices":[{"text":"x"}]})")});
  EXPECT_EQ(Json::parse(find<Respond>(actions)->response.body)["id"], "cmpl-id");

  make(kStream);
  feed(Begin{});
  feed(PrefillAnswered{answer(500, "{}")});
  feed(prefilled());
  feed(DecodeStreaming{});
  actions = feed(DecodeEvent{R"({"id":"cmpl-id-retry1","choices":[{"index":0,"text":"a"}]})"});
  EXPECT_EQ(written(actions), "{\"id\":\"cmpl-id\",\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n");
}

TEST_F(Fsm, ALoneDecodeEngineThatFailedButAnswersProbesStillServes) {
  instances_.remove(Role::kDecode, "d", 1);
  for (int i = 0; i < 5; ++i) instances_.note(d_[0], i == 4 ? Outcome::kUnreachable : Outcome::kFailed, now_);
  std::vector<std::unique_ptr<RequestFsm>> burst;
  for (int i = 0; i < 24; ++i) {
    make(kWhole);
    feed(Begin{});
    EXPECT_TRUE(find<CallDecode>(feed(prefilled()))) << i;
    burst.push_back(std::move(fsm_));
  }
}

TEST(RequestPlan, BadBodiesAreNamed) {
  EXPECT_FALSE(plan_request("/v1/completions", ""));
  EXPECT_FALSE(plan_request("/v1/completions", "[1]"));
  EXPECT_FALSE(plan_request("/v1/completions", "{\"prompt\":\"\xff\"}"));
  EXPECT_FALSE(plan_request("/v1/completions", R"({"stream":"yes"})"));
  EXPECT_FALSE(plan_request("/v1/completions", std::string(1'000'000, '[')));
  EXPECT_TRUE(plan_request("/v1/completions", R"({"prompt":"[[[[\"","x":{"y":[1]}})"));
}

TEST(RequestPlan, ImagesDoNotCountByTheirBase64) {
  const std::string image = "data:image/png;base64," + std::string(1'000'000, 'A');
  const auto plan = plan_request(
      "/v1/chat/completions",
      Json{{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", {{"url", image}}}}}}}}}}
          .dump());
  ASSERT_TRUE(plan);
  EXPECT_LT(plan->load, 10'000);
}

}  // namespace
}  // namespace baton::proxy
