// One model, one answer: a request's tokens and logits depend on its prompt, parameters and seed alone. Each test runs
// the same requests another way and wants every token and every logits hash equal.
#include <gtest/gtest.h>

#include "engine/testing/harness.h"

namespace baton::engine::testing {
namespace {

constexpr int kRequests = 24;

// Prompts of 1 to 70 tokens, some sharing a prefix; greedy, seeded and with every parameter that could go wrong.
std::vector<EngineRequest> mixed_requests() {
  std::vector<EngineRequest> requests;
  const auto shared = random_prompt(99, 40);
  for (int i = 0; i < kRequests; ++i) {
    auto prompt = random_prompt(static_cast<uint64_t>(i), 1 + i * 3);
    if (i % 3 == 0) prompt.insert(prompt.begin(), shared.begin(), shared.end());
    auto request = make_request("r" + std::to_string(i), prompt);
    auto& params = request.sampling;
    params.max_tokens = 4 + i % 17;
    if (i % 2) {
      params.temperature = 0.7f + 0.1f * static_cast<float>(i % 5);
      params.seed = static_cast<uint64_t>(i) * 31;
    }
    if (i % 5 == 1) params.top_p = 0.8f;
    if (i % 5 == 2) params.top_k = 12;
    if (i % 5 == 3) params.min_p = 0.1f;
    if (i % 4 == 1) params.repetition_penalty = 1.4f;
    if (i % 4 == 2) params.frequency_penalty = 0.6f;
    if (i % 4 == 3) params.presence_penalty = 0.9f;
    if (i % 6 == 1) params.bad_words = {{5}, {7, 9}};
    if (i % 6 == 2) params.logit_bias = {{3, 2.5f}, {4, -3}};
    if (i % 7 == 3) params.logprobs = 2;
    if (i % 11 == 4) params.prompt_logprobs = 1;
    request.prompt_index = i % 3;
    request.choice_index = i % 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> hashes;
  std::vector<uint64_t> prompt_hashes;
  bool operator==(const Answer&) const = default;
};
Answer answer_of(const Gathered& gathered) {
  return {gathered.tokens, gathered.hashes, gathered.first.prompt_logits_hashes};
}

// Each request alone in a fresh engine's ordinary configuration.
const std::vector<Answer>& alone() {
  static const auto answers = [] {
    std::vector<Answer> all;
    for (const auto& request : mixed_requests()) {
      Harness harness({.config = Harness::small_config()});
      all.push_back(answer_of(harness.run(request)));
    }
    return all;
  }();
  return answers;
}

void expect_same(Harness& harness, const char* how) {
  const auto gathered = harness.run_all(mixed_requests());
  for (size_t i = 0; i < gathered.size(); ++i) {
    EXPECT_EQ(answer_of(gathered[i]), alone()[i]) << how << ", request " << i;
    EXPECT_FALSE(gathered[i].tokens.empty());
  }
  EXPECT_TRUE(harness.all_free()) << how;
}

TEST(Exactness, BatchedAsAlone) {
  Harness harness({.config = Harness::small_config()});
  expect_same(harness, "batched");
}

TEST(Exactness, WhateverTheChunk) {
  for (const int budget : {8, 16, 33, 512}) {
    auto config = Harness::small_config();
    config.max_num_batched_tokens = budget;
    Harness harness({.config = config});
    expect_same(harness, "token budget");
  }
  auto config = Harness::small_config();
  config.long_prefill_token_threshold = 3;
  Harness harness({.config = config});
  expect_same(harness, "long prefill threshold");
}

TEST(Exactness, WhateverTheBlockSize) {
  for (const int block_size : {1, 3, 16, 128, 768}) {
    auto config = Harness::small_config();
    config.block_size = block_size;
    config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 1024 / block_size + 10);
    Harness harness({.config = config});
    expect_same(harness, "block size");
  }
}

TEST(Exactness, AfterAPrefixHit) {
  auto config = Harness::small_config();
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 1000);
  config.max_num_seqs = 32;
  Harness harness({.config = config});
  expect_same(harness, "cold");
  const auto before = harness.engine().stats().prefix_hits;
  expect_same(harness, "warm");
  EXPECT_GT(harness.engine().stats().prefix_hits, before + 500);
}

TEST(Exactness, WithoutPrefixCaching) {
  auto config = Harness::small_config();
  config.prefix_caching = false;
  Harness harness({.config = config});
  expect_same(harness, "no prefix cache");
  EXPECT_EQ(harness.engine().stats().prefix_hits, 0);
}

TEST(Exactness, WithForcedPreemption) {
  for (const bool caching : {true, false}) {
    auto config = Harness::small_config();
    config.test_preempt_probability = 0.6;
    config.prefix_caching = caching;
    Harness harness({.config = config});
    expect_same(harness, "forced preemption");
    EXPECT_GT(harness.engine().stats().preemptions, 20);
  }
}

TEST(Exactness, WithTooFewBlocks) {
  auto config = Harness::small_config();
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 33);
  Harness harness({.config = config});
  expect_same(harness, "33 blocks");
  EXPECT_GT(harness.engine().stats().preemptions, 0);
}

TEST(Exactness, WhateverTheThreads) {
  for (const int threads : {2, 5}) {
    Harness harness({.config = Harness::small_config(), .threads = threads});
    expect_same(harness, "threads");
  }
}

TEST(Exactness, ByPriorityInAnyOrder) {
  auto config = Harness::small_config();
  config.priority_scheduling = true;
  config.kv_cache_bytes = Harness::bytes_for_blocks(config, {}, 40);
  Harness harness({.config = config});
  auto requests = mixed_requests();
  for (size_t i = 0; i < requests.size(); ++i) requests[i].priority = static_cast<int>((i * 7) % 5);
  const auto gathered = harness.run_all(requests);
  for (size_t i = 0; i < gathered.size(); ++i) EXPECT_EQ(answer_of(gathered[i]), alone()[i]) << i;
}

TEST(Exactness, ResumedElsewhereAtAnyToken) {
  Harness harness({.config = Harness::small_config()});
  const auto requests = mixed_requests();
  for (size_t i = 0; i < requests.size(); i += 2) {
    const auto& whole = alone()[i].tokens;
    for (size_t cut = 1; cut < whole.size(); cut += 3) {
      auto request = requests[i];
      request.output_ids.assign(whole.begin(), whole.begin() + static_cast<long>(cut));
      request.sampling.max_tokens -= static_cast<int>(cut);
      const auto rest = harness.run(request);
      EXPECT_EQ(rest.tokens, std::vector<TokenId>(whole.begin() + static_cast<long>(cut), whole.end())) << i;
    }
  }
}

TEST(Exactness, AnUnseededRequestIsReproducibleByTheSeedItReports) {
  Harness harness({.config = Harness::small_config()});
  auto request = make_request("a", random_prompt(5, 10));
  request.sampling.temperature = 1;
  const auto first = harness.run(request);
  request.id = "b";
  EXPECT_NE(harness.run(request).tokens, first.tokens) << "another seed is drawn";
  request.id = "c";
  request.sampling.seed = first.first.seed;
  EXPECT_EQ(harness.run(request).tokens, first.tokens);
}

TEST(Exactness, ChoicesAndPromptsOfOneCallDiffer) {
  Harness harness({.config = Harness::small_config()});
  auto request = make_request("a", random_prompt(5, 10));
  request.sampling.temperature = 1;
  request.sampling.seed = 4;
  const auto first = harness.run(request).tokens;
  request.choice_index = 1;
  const auto choice = harness.run(request).tokens;
  request.choice_index = 0;
  request.prompt_index = 1;
  const auto prompt = harness.run(request).tokens;
  EXPECT_NE(first, choice);
  EXPECT_NE(first, prompt);
  EXPECT_NE(choice, prompt);
}

TEST(Exactness, TheFakeModelNoticesAWrongToken) {
  // The other tests say something only if a change in the history changes the logits.
  Harness harness({.config = Harness::small_config()});
  auto prompt = random_prompt(5, 30);
  const auto first = harness.run(make_request("a", prompt));
  prompt[0] ^= 1;
  EXPECT_NE(harness.run(make_request("b", prompt)).hashes, first.hashes);
}

}  // namespace
}  // namespace baton::engine::testing
