// Sampling must follow the published functions, vLLM's parameters in vLLM's order, and one arithmetic whatever runs
// beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "engine/sampling/noise.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sampler.h"

namespace baton::engine {
namespace {

using testing::ElementsAre;

std::vector<float> random_logits(uint32_t seed, int count, float spread = 5) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(static_cast<size_t>(count));
  for (auto& logit : logits) logit = normal(random);
  return logits;
}

SamplingState state_of(SamplingParams params, std::vector<TokenId> prompt = {}, std::vector<TokenId> outputs = {},
                       std::vector<TokenId> eos = {}) {
  if (!params.seed) params.seed = 1;
  SamplingState state(params, 0, 0, prompt, eos);
  for (const auto token : outputs) state.accept(token);
  return state;
}

TokenId choose(const std::vector<float>& logits, const SamplingState& state) {
  TokenScratch scratch;
  const auto token = choose_token(logits, state, state.params().min_tokens, scratch);
  EXPECT_TRUE(token.has_value());
  return token.value_or(-1);
}

// Every token that many seeds bring.
std::set<TokenId> support(const std::vector<float>& logits, SamplingParams params, int draws = 3000) {
  std::set<TokenId> seen;
  for (int i = 0; i < draws; ++i) {
    params.seed = static_cast<uint64_t>(i);
    seen.insert(choose(logits, state_of(params)));
  }
  return seen;
}

TEST(Philox, KnownAnswers) {
  // Random123, tests/kat_vectors (github.com/DEShawResearch/random123), the lines "philox4x32 10".
  EXPECT_THAT(philox4x32_10({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Noise, GumbelFollowsItsFormulaAndStaysUnderItsBound) {
  std::mt19937 random(7);
  std::vector<uint32_t> words{0, 1, 2, 0xffffffff, 0xfffffffe, 1u << 26, (1u << 26) - 1, 0x80000000};
  for (int i = 0; i < 20000; ++i) words.push_back(static_cast<uint32_t>(random()) >> (i % 32));
  for (const auto word : words) {
    const double v = (static_cast<double>(word) + 0.5) / 4294967296.0;
    const double expected = -std::log(-std::log1p(-v));
    ASSERT_NEAR(gumbel(word), expected, 2e-6 * (1 + std::abs(expected))) << word;
    ASSERT_LE(gumbel(word), gumbel_bound(word)) << word;
  }
}

TEST(Noise, EveryPartOfTheKeyCounts) {
  std::set<std::array<uint32_t, 4>> seen;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 32}) {
    for (uint32_t i = 0; i < 16; ++i) {
      seen.insert(noise_words(
          {.seed = seed, .prompt_index = i & 1, .choice_index = (i >> 1) & 1, .output_position = (i >> 2) & 1},
          i >> 3));
    }
  }
  EXPECT_EQ(seen.size(), 48u);
}

TEST(ChooseToken, GreedyTiesGoToTheLowerId) {
  EXPECT_EQ(choose({1, 3, 3, 2}, state_of({.temperature = 0})), 1);
  EXPECT_EQ(choose({1, 3, 3, 2}, state_of({.temperature = 1e-6f})), 1);
}

TEST(ChooseToken, SampledFrequenciesFollowTheSoftmax) {
  const std::vector<float> logits{0.5f, 2.0f, -1.0f, 1.0f, 0.0f, -3.0f};
  constexpr int kDraws = 40000;
  for (const float temperature : {1.0f, 0.5f, 2.0f}) {
    std::vector<int> counts(logits.size());
    for (int i = 0; i < kDraws; ++i) {
      SamplingParams params{.temperature = temperature};
      params.seed = static_cast<uint64_t>(i) * 7919;
      ++counts[static_cast<size_t>(choose(logits, state_of(params)))];
    }
    double total = 0, chi_square = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = kDraws * std::exp(logits[i] / temperature) / total;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 20.5) << "5 degrees of freedom, p = 0.001, temperature " << temperature;
  }
}

// The same choice the long way: everything scored, everything sorted, all noise made.
TokenId choose_plainly(std::vector<float> logits, const SamplingState& state) {
  const auto& params = state.params();
  std::vector<std::pair<float, TokenId>> order;
  const float maximum = *std::ranges::max_element(logits);
  for (size_t id = 0; id < logits.size(); ++id) {
    order.emplace_back(-(logits[id] - maximum) / params.temperature, static_cast<TokenId>(id));
  }
  std::ranges::sort(order);
  if (params.min_p > 0) {
    std::erase_if(order, [&](const auto& entry) { return std::exp(-entry.first) < params.min_p; });
  }
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  double total = 0, sum = 0;
  for (const auto& entry : order) total += std::exp(-entry.first);
  size_t kept = 0;
  while (kept < order.size() && (kept == 0 || sum < params.top_p * total)) sum += std::exp(-order[kept++].first);
  if (params.top_p < 1) order.resize(kept);
  float best = -std::numeric_limits<float>::infinity();
  TokenId winner = -1;
  for (const auto& [score, id] : order) {
    const float value =
        -score + gumbel(noise_words(state.noise_key(), static_cast<uint32_t>(id) >> 2)[static_cast<size_t>(id) & 3]);
    if (value > best || (value == best && id < winner)) {
      best = value;
      winner = id;
    }
  }
  return winner;
}

TEST(ChooseToken, ShortCutsNeverChangeTheChoice) {
  std::mt19937 random(3);
  int differing = 0;
  for (int i = 0; i < 3000; ++i) {
    auto logits =
        random_logits(static_cast<uint32_t>(i), 1 + static_cast<int>(random() % 300), i % 3 == 0 ? 0.5f : 6.0f);
    if (i % 5 == 0) {
      for (auto& logit : logits) logit = std::round(logit);  // many ties
    }
    SamplingParams params{.temperature = 0.25f * static_cast<float>(1 + random() % 8)};
    if (i % 2) params.top_k = static_cast<int>(random() % 40);
    if (i % 3) params.top_p = 0.05f + 0.9f * static_cast<float>(random() % 100) / 100;
    if (i % 4 == 0) params.min_p = static_cast<float>(random() % 100) / 150;
    params.seed = random();
    const auto state = state_of(params, {}, {1, 2, 3});
    differing += choose(logits, state) != choose_plainly(logits, state);
  }
  // Where a sum falls on top_p to the last bit of a double, the two orders of summing may differ.
  EXPECT_LE(differing, 1);
}

TEST(ChooseToken, TopKTopPAndMinPKeepTheRightTokens) {
  const std::vector<float> logits{std::log(0.4f), std::log(0.1f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  EXPECT_THAT(support(logits, {.top_k = 2}), ElementsAre(0, 2));
  EXPECT_THAT(support(logits, {.top_k = -1}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(support(logits, {.top_p = 0.39f}), ElementsAre(0));
  EXPECT_THAT(support(logits, {.top_p = 0.41f}), ElementsAre(0, 2));
  EXPECT_THAT(support(logits, {.top_p = 0.86f}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(support(logits, {.top_p = 1e-6f}), ElementsAre(0));
  EXPECT_THAT(support(logits, {.min_p = 0.3f}), ElementsAre(0, 2, 3));
  EXPECT_THAT(support(logits, {.min_p = 1}), ElementsAre(0));
  // top_p looks at what top_k left: 0.4 / 0.7 is above a half.
  EXPECT_THAT(support(logits, {.top_p = 0.5f, .top_k = 2}), ElementsAre(0));
  EXPECT_THAT(support({1, 1, 1, 0}, {.top_k = 2}), ElementsAre(0, 1)) << "ties to the lower ids";
}

TEST(ChooseToken, PenaltiesHaveVllmsFormulas) {
  SamplingParams params{.temperature = 0};
  params.repetition_penalty = 2;
  // Positive logits are divided, negative ones multiplied; prompt and output tokens alike.
  EXPECT_EQ(choose({4, 3, 1}, state_of(params, {0})), 1);
  EXPECT_EQ(choose({4, 3, 1}, state_of(params, {}, {0})), 1);
  EXPECT_EQ(choose({-1, -1.5f, -9}, state_of(params, {0})), 1);
  SamplingParams frequency{.temperature = 0};
  frequency.frequency_penalty = 0.5f;
  EXPECT_EQ(choose({4, 3.2f}, state_of(frequency, {0, 0, 0, 0}, {0})), 0) << "the prompt does not count";
  EXPECT_EQ(choose({4, 3.2f}, state_of(frequency, {}, {0, 0})), 1);
  SamplingParams presence{.temperature = 0};
  presence.presence_penalty = 0.9f;
  EXPECT_EQ(choose({4, 3.2f, 2.9f}, state_of(presence, {}, {0, 0, 0, 1})), 0) << "once, however often";
  EXPECT_EQ(choose({4, 3.2f, 2.9f}, state_of(presence, {}, {0, 0, 0})), 1);
}

TEST(ChooseToken, BiasComesBeforePenaltiesAsInVllm) {
  SamplingParams params{.temperature = 0};
  params.repetition_penalty = 2;
  params.logit_bias = {{0, 2}};
  // (2 + 2) / 2 = 2 loses to 2.5; 2 / 2 + 2 = 3 would win.
  EXPECT_EQ(choose({2, 2.5f}, state_of(params, {0})), 1);
  SamplingParams huge{.temperature = 0};
  huge.logit_bias = {{0, -1000}};
  EXPECT_EQ(choose({50, -51}, state_of(huge)), 0) << "clamped to -100";
}

TEST(ChooseToken, MasksForbid) {
  SamplingParams allowed{.temperature = 0};
  allowed.allowed_token_ids = {2, 3};
  EXPECT_EQ(choose({9, 8, 1, 2}, state_of(allowed)), 3);
  SamplingParams words{.temperature = 0};
  words.bad_words = {{3}, {5, 0}, {7, 8, 1}};
  EXPECT_EQ(choose({9, 8, 1, 20}, state_of(words)), 0);
  EXPECT_EQ(choose({9, 8, 1, 20}, state_of(words, {}, {5})), 1);
  EXPECT_EQ(choose({9, 8, 1, 20}, state_of(words, {5}, {})), 0) << "only outputs continue a bad word";
  EXPECT_EQ(choose({9, 10, 1, 20}, state_of(words, {}, {6, 7, 8})), 0);
  EXPECT_EQ(choose({9, 10, 1, 20}, state_of(words, {}, {8})), 1);
  SamplingParams minimum{.temperature = 0};
  minimum.stop_token_ids = {1};
  minimum.min_tokens = 2;
  EXPECT_EQ(choose({9, 10, 1}, state_of(minimum, {}, {5}, {0})), 2);
  EXPECT_EQ(choose({9, 10, 1}, state_of(minimum, {}, {5, 5}, {0})), 1);
}

TEST(ChooseToken, ARowWithoutAChoiceIsAnErrorOfItsRequest) {
  TokenScratch scratch;
  SamplingParams params{.temperature = 0};
  params.allowed_token_ids = {1};
  params.bad_words = {{1}};
  const auto none = choose_token(std::vector<float>{1, 2}, state_of(params), 0, scratch);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kInvalidArgument);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto broken = choose_token(std::vector<float>{1, bad, 2}, state_of({}), 0, scratch);
    ASSERT_FALSE(broken.has_value());
    EXPECT_EQ(broken.error().code(), Code::kInternal);
  }
}

TEST(Logprobs, MatchDoublePrecisionAndRankAsVllm) {
  const auto logits = random_logits(5, 1000);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  const auto row = row_logprobs(logits, 17, 10);
  EXPECT_NEAR(row.own.logprob, logits[17] - std::log(total), 1e-5);
  EXPECT_EQ(row.own.rank, std::ranges::count_if(logits, [&](float logit) { return logit >= logits[17]; }));
  ASSERT_EQ(row.top.size(), 10u);
  auto sorted = logits;
  std::ranges::sort(sorted, std::greater());
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(logits[static_cast<size_t>(row.top[i].token)], sorted[i]);
    EXPECT_NEAR(row.top[i].logprob, sorted[i] - std::log(total), 1e-5);
    EXPECT_EQ(row.top[i].rank, static_cast<int>(i) + 1);
  }
}

TEST(Logprobs, WholeVocabularyNoneAndTies) {
  const std::vector<float> logits{1, 2, 2, 0};
  const auto whole = row_logprobs(logits, 2, -1);
  std::vector<TokenId> order;
  double sum = 0;
  for (const auto& entry : whole.top) {
    order.push_back(entry.token);
    sum += std::exp(entry.logprob);
  }
  EXPECT_THAT(order, ElementsAre(1, 2, 0, 3));
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_EQ(whole.own.rank, 2) << "tokens at least as likely";
  EXPECT_TRUE(row_logprobs(logits, 2, 0).top.empty());
  EXPECT_EQ(row_logprobs(logits, 2, 9).top.size(), 4u);
}

TEST(Sampler, RowsDoNotDependOnThreadsOrNeighbours) {
  constexpr int kRows = 37, kVocab = 501;
  std::vector<std::vector<float>> logits;
  std::vector<SamplingState> states;
  for (int i = 0; i < kRows; ++i) {
    logits.push_back(random_logits(static_cast<uint32_t>(i), kVocab));
    SamplingParams params{.temperature = i % 4 == 0 ? 0.0f : 0.8f, .top_p = i % 3 ? 0.9f : 1.0f, .top_k = i % 5 * 10};
    params.logprobs = i % 2 ? std::optional(3) : std::nullopt;
    params.repetition_penalty = i % 7 ? 1.0f : 1.3f;
    params.seed = static_cast<uint64_t>(i / 2);
    states.push_back(state_of(params, {1, 2, 3}, {4, 5}));
  }
  const auto run = [&](int threads, int first, int count) {
    ComputePool pool({.threads = threads, .spin_us = 0});
    Sampler sampler(kVocab, threads);
    std::vector<SampleTask> tasks;
    for (int i = first; i < first + count; ++i) {
      tasks.push_back({logits[static_cast<size_t>(i)].data(), &states[static_cast<size_t>(i)], true});
    }
    std::vector<SampleResult> results(tasks.size());
    sampler.sample(tasks, results, pool);
    return results;
  };
  const auto together = run(1, 0, kRows);
  const auto threaded = run(3, 0, kRows);
  for (int i = 0; i < kRows; ++i) {
    const auto alone = run(1, i, 1);
    const auto& expected = together[static_cast<size_t>(i)];
    for (const auto& other : {alone[0], threaded[static_cast<size_t>(i)]}) {
      EXPECT_EQ(*other.token, *expected.token);
      EXPECT_EQ(other.logits_hash, expected.logits_hash);
      EXPECT_EQ(other.logprobs.has_value(), expected.logprobs.has_value());
      if (expected.logprobs) {
        EXPECT_EQ(other.logprobs->own.logprob, expected.logprobs->own.logprob);
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine
