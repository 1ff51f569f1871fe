// The boundary's promises: how requests end, what is refused, what aborting frees, and that an engine's death is heard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/testing/harness.h"

namespace baton::engine::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Finish, LengthByMaxTokensAndByMaxModelLen) {
  Harness harness({.config = Harness::small_config()});
  const auto by_tokens = harness.run(make_request("a", random_prompt(1, 10)));
  EXPECT_EQ(by_tokens.tokens.size(), 8u);
  EXPECT_EQ(by_tokens.last.finish, FinishReason::kLength);
  auto request = make_request("b", random_prompt(1, 120));
  request.sampling.max_tokens = 1000;
  const auto by_length = harness.run(request);
  EXPECT_EQ(by_length.tokens.size(), 8u);
  EXPECT_EQ(by_length.last.finish, FinishReason::kLength);
}

TEST(Finish, StopByEndTokenAndByStopToken) {
  Harness plain({.config = Harness::small_config()});
  const auto tokens = plain.run(make_request("a", random_prompt(1, 10))).tokens;
  ASSERT_NE(tokens[3], tokens[0]);
  auto config = Harness::small_config();
  config.eos_token_ids = {tokens[3]};
  Harness harness({.config = config});
  const auto at_end = harness.run(make_request("a", random_prompt(1, 10)));
  EXPECT_EQ(at_end.tokens, std::vector<TokenId>(tokens.begin(), tokens.begin() + 4)) << "the end token is reported";
  EXPECT_EQ(at_end.last.finish, FinishReason::kStop);
  EXPECT_EQ(at_end.last.stop_token, std::nullopt);

  auto ignoring = make_request("b", random_prompt(1, 10));
  ignoring.sampling.ignore_eos = true;
  EXPECT_EQ(harness.run(ignoring).tokens, tokens);

  auto stopping = make_request("c", random_prompt(1, 10));
  stopping.sampling.stop_token_ids = {tokens[1]};
  const auto at_stop = harness.run(stopping);
  EXPECT_EQ(at_stop.tokens.size(), 2u);
  EXPECT_EQ(at_stop.last.finish, FinishReason::kStop);
  EXPECT_EQ(at_stop.last.stop_token, tokens[1]);

  auto late = make_request("d", random_prompt(1, 10));
  late.sampling.min_tokens = 8;
  const auto without = harness.run(late);
  EXPECT_EQ(without.tokens.size(), 8u);
  EXPECT_THAT(without.tokens, ::testing::Not(::testing::Contains(tokens[3])));
}

TEST(Finish, LogitsThatAreNotNumbersEndTheRequestAlone) {
  Harness harness({.config = Harness::small_config(), .model = {.nan_at_token = 42}});
  auto prompt = random_prompt(1, 9);
  std::ranges::replace(prompt, 42, 41);
  auto broken = prompt;
  broken.push_back(42);
  const auto bad = harness.run(make_request("bad", broken));
  EXPECT_EQ(bad.last.finish, FinishReason::kError);
  ASSERT_TRUE(bad.last.error.has_value());
  EXPECT_EQ(bad.last.error->code(), Code::kInternal);
  EXPECT_TRUE(harness.engine().healthy());
  EXPECT_TRUE(harness.all_free());
}

TEST(Output, LogprobsAndPromptLogprobs) {
  auto config = Harness::small_config();
  config.max_logprobs = -1;
  config.max_num_batched_tokens = 16;  // the prompt's rows come in several steps
  Harness harness({.config = config});
  auto request = make_request("a", random_prompt(3, 40));
  request.sampling.logprobs = 3;
  request.sampling.prompt_logprobs = 2;
  const auto all = harness.run(request);
  ASSERT_EQ(all.first.prompt_logprobs.size(), 39u);
  ASSERT_EQ(all.first.prompt_logits_hashes.size(), 39u);
  for (size_t i = 0; i < 39; ++i) {
    ASSERT_EQ(all.first.prompt_logprobs[i].size(), 3u);
    EXPECT_EQ(all.first.prompt_logprobs[i][0].token, request.prompt_ids[i + 1]);
    EXPECT_EQ(all.first.prompt_logprobs[i][1].rank, 1);
  }
  for (const auto& token : all.details) {
    ASSERT_TRUE(token.logprob.has_value());
    EXPECT_EQ(token.logprob->token, token.token);
    EXPECT_EQ(token.logprob->rank, 1) << "greedy";
    ASSERT_EQ(token.top_logprobs.size(), 3u);
    EXPECT_EQ(token.top_logprobs[0].token, token.token);
    EXPECT_EQ(token.top_logprobs[0].logprob, token.logprob->logprob);
  }
  // A prompt position's logits are those that generation saw there.
  auto longer = make_request("b", request.prompt_ids);
  longer.prompt_ids.insert(longer.prompt_ids.end(), all.tokens.begin(), all.tokens.end());
  longer.sampling.prompt_logprobs = -1;
  longer.sampling.logprobs = -1;
  const auto again = harness.run(longer);
  ASSERT_EQ(again.first.prompt_logits_hashes.size(), 47u);
  for (size_t i = 0; i < 39; ++i) EXPECT_EQ(again.first.prompt_logits_hashes[i], all.first.prompt_logits_hashes[i]);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(again.first.prompt_logits_hashes[39 + i], all.hashes[i]);
  EXPECT_EQ(again.first.prompt_logprobs[0].size(), 98u);
  EXPECT_EQ(again.details[0].top_logprobs.size(), 97u);
  EXPECT_EQ(again.first.cached_tokens, 0) << "a cached prefix has no logits";
}

TEST(Output, CachedTokensAreReportedAndSaltsSeparate) {
  Harness harness({.config = Harness::small_config()});
  EXPECT_EQ(harness.run(make_request("a", random_prompt(1, 21))).first.cached_tokens, 0);
  EXPECT_EQ(harness.run(make_request("b", random_prompt(1, 21))).first.cached_tokens, 20);
  auto salted = make_request("c", random_prompt(1, 21));
  salted.cache_salt = "s";
  EXPECT_EQ(harness.run(salted).first.cached_tokens, 0);
  harness.engine().reset_prefix_cache();
  EXPECT_EQ(harness.run(make_request("d", random_prompt(1, 21))).first.cached_tokens, 0);
}

TEST(Abort, FreesAtOnceInEveryStage) {
  auto config = Harness::small_config();
  config.max_num_seqs = 1;
  auto hold = std::make_shared<std::atomic<bool>>(true);
  Harness harness({.config = config, .model = {.hold = hold, .hold_from_step = 3}});
  auto running = make_request("running", random_prompt(1, 20));
  running.sampling.max_tokens = 100;
  ASSERT_TRUE(harness.submit(running));
  ASSERT_TRUE(harness.submit(make_request("waiting", random_prompt(2, 20))));
  harness.wait_first_token("running");
  harness.engine().abort("waiting");
  harness.engine().abort("running");
  harness.engine().abort("running");
  harness.engine().abort("unknown");
  hold->store(false);
  const auto first = harness.wait("running");
  EXPECT_EQ(first.last.finish, FinishReason::kAbort);
  EXPECT_LT(first.tokens.size(), 100u);
  const auto second = harness.wait("waiting");
  EXPECT_EQ(second.last.finish, FinishReason::kAbort);
  EXPECT_TRUE(second.tokens.empty());
  EXPECT_TRUE(harness.all_free());
}

TEST(Abort, AllAtOnce) {
  Harness harness({.config = Harness::small_config()});
  for (int i = 0; i < 20; ++i) {
    auto request = make_request("r" + std::to_string(i), random_prompt(static_cast<uint64_t>(i), 20));
    request.sampling.max_tokens = 100;
    ASSERT_TRUE(harness.submit(request));
  }
  EXPECT_GT(harness.engine().abort_all(), 0);
  for (int i = 0; i < 20; ++i) harness.wait("r" + std::to_string(i));
  EXPECT_TRUE(harness.all_free());
}

TEST(Admission, IsBounded) {
  auto config = Harness::small_config();
  config.max_num_seqs = 1;
  config.max_waiting_requests = 3;
  auto hold = std::make_shared<std::atomic<bool>>(true);
  Harness harness({.config = config, .model = {.hold = hold, .hold_from_step = 3}});
  auto request = make_request("first", random_prompt(1, 5));
  request.sampling.max_tokens = 50;
  ASSERT_TRUE(harness.submit(request));
  harness.wait_first_token("first");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(harness.submit(make_request("w" + std::to_string(i), {1, 2})));
  const auto refused = harness.engine().submit(make_request("w3", {1, 2}), [](RequestOutput&&) { FAIL(); });
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  const auto twice = harness.engine().submit(make_request("w1", {1, 2}), [](RequestOutput&&) { FAIL(); });
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code(), Code::kAlreadyExists);
  hold->store(false);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(harness.wait("w" + std::to_string(i)).last.finish, FinishReason::kLength);
  EXPECT_TRUE(harness.run(make_request("w1", {1, 2})).finished) << "an id can be used again";
}

TEST(Admission, PriorityRunsTheMoreImportantFirst) {
  auto config = Harness::small_config();
  config.max_num_seqs = 1;
  config.priority_scheduling = true;
  auto hold = std::make_shared<std::atomic<bool>>(true);
  Harness harness({.config = config, .model = {.hold = hold}});
  ASSERT_TRUE(harness.submit(make_request("first", {1})));
  std::mutex mutex;
  std::vector<std::string> order;
  for (const auto& [id, priority] : {std::pair("low", 5), std::pair("high", -1), std::pair("middle", 2)}) {
    auto request = make_request(id, {1, 2});
    request.priority = priority;
    ASSERT_TRUE(harness.engine().submit(request, [&](RequestOutput&& output) {
      std::lock_guard lock(mutex);
      if (output.finish) order.push_back(output.id);
    }));
  }
  // The three must be with the scheduler before it may choose: they are, once the held step has ended.
  hold->store(false);
  harness.engine().drain(std::chrono::seconds(10));
  EXPECT_THAT(order, ElementsAre("high", "middle", "low"));
}

TEST(Validation, SaysWhatIsWrong) {
  Harness harness({.config = Harness::small_config()});
  const auto refusal = [&](auto change) {
    auto request = make_request("a", {1, 2, 3});
    change(request);
    const auto result = harness.engine().submit(request, [](RequestOutput&&) { FAIL(); });
    if (result) return std::string("accepted");
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    return result.error().message();
  };
  using Request = EngineRequest&;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal([](Request r) { r.prompt_ids.clear(); }), HasSubstr("prompt cannot be empty"));
  EXPECT_THAT(refusal([](Request r) { r.prompt_ids = {97}; }), HasSubstr("out of vocabulary"));
  EXPECT_THAT(refusal([](Request r) { r.prompt_ids = {-1}; }), HasSubstr("out of vocabulary"));
  EXPECT_THAT(refusal([](Request r) { r.prompt_ids.assign(128, 1); }),
              HasSubstr("This model's maximum context length is 128 tokens. However, your request has 128 input"));
  EXPECT_THAT(refusal([](Request r) { r.id.clear(); }), HasSubstr("id"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.temperature = -1; }), HasSubstr("temperature must be non-negative"));
  EXPECT_THAT(refusal([&](Request r) { r.sampling.temperature = nan; }), HasSubstr("temperature"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.top_p = 0; }), HasSubstr("top_p must be in (0, 1]"));
  EXPECT_THAT(refusal([&](Request r) { r.sampling.top_p = nan; }), HasSubstr("top_p"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.top_k = -2; }), HasSubstr("top_k"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.min_p = 1.1f; }), HasSubstr("min_p"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.presence_penalty = 2.1f; }), HasSubstr("presence_penalty"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.frequency_penalty = -2.1f; }), HasSubstr("frequency_penalty"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.repetition_penalty = 0; }), HasSubstr("repetition_penalty"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.max_tokens = 0; }), HasSubstr("max_tokens must be at least 1"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.min_tokens = 9; }), HasSubstr("min_tokens must be less than"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.min_tokens = -1; }), HasSubstr("min_tokens"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.logprobs = 21; }), HasSubstr("greater than max allowed: 20"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.logprobs = -1; }), HasSubstr("greater than max allowed: 20"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.prompt_logprobs = -2; }), HasSubstr("prompt logprobs"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.logit_bias = {{97, 1}}; }), HasSubstr("logit_bias"));
  EXPECT_THAT(refusal([&](Request r) { r.sampling.logit_bias = {{9, nan}}; }), HasSubstr("logit_bias"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.allowed_token_ids = {-5}; }), HasSubstr("allowed_token_ids"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.stop_token_ids = {1000}; }), HasSubstr("stop_token_ids"));
  EXPECT_THAT(refusal([](Request r) { r.sampling.bad_words = {{1}, {2, 97}}; }), HasSubstr("bad_words"));
  EXPECT_THAT(refusal([](Request r) { r.output_ids = {97}; }), HasSubstr("out of vocabulary"));
  EXPECT_THAT(refusal([](Request r) { r.priority = 1; }), HasSubstr("Priority scheduling is not enabled"));
}

TEST(Death, IsHeardByEveryRequestAndByHealth) {
  Harness harness({.config = Harness::small_config(), .model = {.throw_at_step = 5}});
  for (int i = 0; i < 12; ++i) {
    auto request = make_request("r" + std::to_string(i), random_prompt(static_cast<uint64_t>(i), 30));
    request.sampling.max_tokens = 50;
    (void)harness.submit(request);
  }
  for (int i = 0; i < 12; ++i) {
    const auto ended = harness.wait("r" + std::to_string(i));
    EXPECT_EQ(ended.last.finish, FinishReason::kError);
    ASSERT_TRUE(ended.last.error.has_value());
    EXPECT_EQ(ended.last.error->code(), Code::kUnavailable);
  }
  EXPECT_FALSE(harness.engine().healthy());
  EXPECT_THAT(harness.engine().health_reason(), HasSubstr("told to die"));
  const auto refused = harness.engine().submit(make_request("late", {1}), [](RequestOutput&&) { FAIL(); });
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  harness.engine().drain(std::chrono::seconds(10));
}

TEST(Drain, LetsWhatRunsEndAndRefusesTheRest) {
  Harness harness({.config = Harness::small_config()});
  auto request = make_request("a", random_prompt(1, 20));
  request.sampling.max_tokens = 90;
  ASSERT_TRUE(harness.submit(request));
  harness.engine().drain(std::chrono::seconds(10));
  EXPECT_EQ(harness.wait("a").last.finish, FinishReason::kLength);
  EXPECT_FALSE(harness.submit(make_request("b", {1})).has_value());
}

TEST(Drain, AbortsAtItsDeadline) {
  auto hold = std::make_shared<std::atomic<bool>>(true);
  Harness harness({.config = Harness::small_config(), .model = {.hold = hold}});
  ASSERT_TRUE(harness.submit(make_request("a", random_prompt(1, 20))));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    hold->store(false);
  });
  harness.engine().drain(std::chrono::milliseconds(10));
  later.join();
  EXPECT_EQ(harness.wait("a").last.finish, FinishReason::kAbort);
}

// The owner destroys what callbacks lead to (sockets, queues) once drain has returned.
TEST(Drain, ReturnsAfterTheLastCallback) {
  Harness harness({.config = Harness::small_config()});
  std::atomic<bool> entered = false, left = false;
  ASSERT_TRUE(harness.engine().submit(make_request("a", {1, 2, 3}), [&](RequestOutput&& output) {
    if (!output.finish) return;
    entered = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    left = true;
  }));
  while (!entered) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  harness.engine().drain(std::chrono::seconds(0));
  EXPECT_TRUE(left);
}

TEST(Idle, TheEngineDoesNotSpin) {
  auto steps = std::make_shared<std::atomic<int64_t>>(0);
  Harness harness({.config = Harness::small_config(), .model = {.steps = steps}});
  harness.run(make_request("a", random_prompt(1, 20)));
  EXPECT_EQ(steps->load(), 8);
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(used, 0.05);
  EXPECT_EQ(steps->load(), 8);
}

TEST(Metrics, HaveVllmsNamesFromTheStart) {
  Harness harness({.config = Harness::small_config()});
  const auto cold = harness.metrics().text();
  for (const char* line : {"vllm:num_requests_running 0", "vllm:num_requests_waiting 0", "vllm:kv_cache_usage_perc 0",
                           "vllm:gpu_cache_usage_perc 0", "vllm:num_preemptions_total 0",
                           "vllm:request_success_total{finished_reason=\"abort\"} 0"}) {
    EXPECT_THAT(cold, HasSubstr(line));
  }
  harness.run(make_request("a", random_prompt(1, 20)));
  harness.run(make_request("b", random_prompt(1, 20)));
  ASSERT_TRUE(harness.all_free());
  const auto warm = harness.metrics().text();
  for (const char* line :
       {"vllm:prompt_tokens_total 40", "vllm:generation_tokens_total 16", "vllm:prefix_cache_queries_total 40",
        "vllm:prefix_cache_hits_total 16", "vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 24",
        "vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 16",
        "vllm:request_success_total{finished_reason=\"length\"} 2", "vllm:time_to_first_token_seconds_count 2",
        "vllm:inter_token_latency_seconds_count 14", "vllm:e2e_request_latency_seconds_count 2",
        "vllm:request_queue_time_seconds_count 2", "vllm:request_prefill_time_seconds_count 2",
        "vllm:request_decode_time_seconds_count 2", "vllm:request_inference_time_seconds_count 2",
        "vllm:iteration_tokens_total_count 16", "vllm:iteration_tokens_total_sum 38"}) {
    EXPECT_THAT(warm, HasSubstr(line));
  }
}

class MakeEngine : public ::testing::Test {
 protected:
  std::string refusal(EngineConfig config, FakeModelOptions model = {}) {
    auto engine = make_engine(config, make_fake_model(model), {.pool = &pool_});
    return engine ? "accepted" : engine.error().message();
  }
  ComputePool pool_{{.threads = 1, .spin_us = 0}};
};

TEST_F(MakeEngine, RefusesWhatCantWork) {
  const auto with = [](auto change) {
    auto config = Harness::small_config();
    change(config);
    return config;
  };
  using Config = EngineConfig&;
  EXPECT_EQ(refusal(Harness::small_config()), "accepted");
  EXPECT_THAT(refusal(with([](Config c) { c.max_model_len = 5000; })), HasSubstr("derived max_model_len (4096)"));
  EXPECT_THAT(refusal(with([](Config c) { c.max_num_batched_tokens = 4; })), HasSubstr("max_num_batched_tokens (4)"));
  EXPECT_THAT(refusal(with([](Config c) { c.kv_cache_dtype = "int4"; })), HasSubstr("--kv-cache-dtype int4"));
  EXPECT_THAT(refusal(with([](Config c) { c.block_size = 0; })), HasSubstr("--block-size"));
  EXPECT_THAT(refusal(with([](Config c) { c.memory_utilization = 1.5; })), HasSubstr("(0, 1]"));
  EXPECT_THAT(refusal(with([](Config c) { c.eos_token_ids = {97}; })), HasSubstr("end token 97"));
  const auto small = refusal(with([](Config c) { c.kv_cache_bytes = Harness::bytes_for_blocks(c, {}, 31); }));
  EXPECT_THAT(small, HasSubstr("To serve at least one request with the model's max seq len (128)"));
  EXPECT_THAT(small, HasSubstr("estimated maximum model length is 124"));
  EXPECT_THAT(small, HasSubstr("--gpu-memory-utilization"));
  EXPECT_THAT(small, HasSubstr("--max-model-len"));
}

TEST_F(MakeEngine, ResolvesDefaults) {
  EngineConfig config;
  config.max_num_seqs = 2;
  auto engine = make_engine(config, make_fake_model(), {.pool = &pool_});
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  const auto& resolved = (*engine)->config();
  EXPECT_EQ(resolved.max_model_len, 4096);
  EXPECT_EQ(resolved.kv_cache_dtype, "bf16");
  // No more than two requests of 4096 tokens can use: 2 * 4096 tokens of 2 layers * 2 * 2 heads * 8 * 2 bytes.
  EXPECT_EQ(resolved.kv_cache_bytes, 2 * 4096 * 128);
  EXPECT_EQ((*engine)->stats().kv_blocks_total, 512);
}

}  // namespace
}  // namespace baton::engine::testing
