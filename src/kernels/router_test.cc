// Routing: numpy's choices and weights, ties, and numbers that are none.
#include "kernels/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "kernels/row_test_data.h"

namespace baton::kernels {
namespace {

using tensor::Isa;
using test::isas;
using test::random_floats;

struct Choice {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Choice run(const RouterSpec& spec, const std::vector<float>& bias, std::vector<float> logits, Isa isa = Isa::kPortable,
           int threads = 1) {
  ComputePool pool({.threads = threads, .spin_us = 0});
  const auto rows = std::ssize(logits) / spec.experts;
  Choice choice{.ids = std::vector<int32_t>(rows * spec.top_k), .weights = std::vector<float>(rows * spec.top_k)};
  route(spec, bias.empty() ? nullptr : bias.data(), logits.data(), spec.experts, rows, choice.ids.data(),
        choice.weights.data(), isa, pool);
  return choice;
}

template <typename T>
std::vector<T> numbers(std::ifstream& file, const std::string& name) {
  std::string line, word;
  std::getline(file, line);
  std::istringstream words(line);
  words >> word;
  EXPECT_EQ(word, name);
  std::vector<T> values;
  for (T value; words >> value;) values.push_back(value);
  return values;
}

// tests/data/kernels/router.txt is numpy's (tools/goldens/make_router.py states the formulas).
TEST(Router, ChoosesAsNumpyDoes) {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/data/kernels/router.txt");
  std::string line, word, name, score;
  std::getline(file, line);
  int cases = 0;
  for (; std::getline(file, line); ++cases) {
    RouterSpec spec;
    int renormalize = 0, rows = 0;
    std::istringstream head(line);
    head >> word >> name >> spec.experts >> spec.top_k >> spec.groups >> spec.top_groups >> score >> renormalize >>
        spec.scale >> rows;
    ASSERT_EQ(word, "case");
    spec.renormalize = renormalize == 1;
    spec.score = score == "sigmoid" ? RouterScore::kSigmoid : RouterScore::kSoftmax;
    ASSERT_TRUE(check_router(spec).has_value()) << name;
    const auto bias = numbers<float>(file, "bias");
    std::vector<float> all_logits;
    Choice all;
    for (int r = 0; r < rows; ++r) {
      const auto logits = numbers<float>(file, "logits");
      const auto ids = numbers<int32_t>(file, "ids");
      const auto weights = numbers<float>(file, "weights");
      ASSERT_EQ(std::ssize(logits), spec.experts);
      ASSERT_EQ(std::ssize(weights), spec.top_k);
      const Choice choice = run(spec, bias, logits);
      EXPECT_EQ(choice.ids, ids) << name << " row " << r;
      for (int s = 0; s < spec.top_k; ++s) {
        EXPECT_NEAR(choice.weights[s], weights[s], 2e-6 * weights[s]) << name << " row " << r << " slot " << s;
      }
      all_logits.insert(all_logits.end(), logits.begin(), logits.end());
      all.ids.insert(all.ids.end(), choice.ids.begin(), choice.ids.end());
      all.weights.insert(all.weights.end(), choice.weights.begin(), choice.weights.end());
    }
    for (Isa isa : isas()) {
      for (int threads : {1, 2}) {
        const Choice batched = run(spec, bias, all_logits, isa, threads);
        EXPECT_EQ(batched.ids, all.ids) << name << " " << isa_name(isa);
        EXPECT_TRUE(test::same_bits(batched.weights, all.weights)) << name << " " << isa_name(isa);
      }
    }
  }
  EXPECT_EQ(cases, 7);
}

TEST(Router, EqualScoresGoToTheLowerId) {
  const Choice choice = run({.experts = 20, .top_k = 5}, {}, std::vector<float>(20, 0.5f));
  EXPECT_EQ(choice.ids, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  const Choice grouped = run({.experts = 20, .top_k = 5, .groups = 5, .top_groups = 2}, {}, std::vector<float>(20, 1));
  EXPECT_EQ(grouped.ids, (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(Router, TheCorrectionChoosesAndDoesNotWeigh) {
  const Choice choice = run({.experts = 4, .top_k = 2}, {0, 0, 5, 0}, {3, 1, -1, 2});
  EXPECT_EQ(choice.ids, (std::vector<int32_t>{2, 0}));
  EXPECT_NEAR(choice.weights[0], 1 / (1 + std::exp(1.0)), 1e-7);
  EXPECT_NEAR(choice.weights[1], 1 / (1 + std::exp(-3.0)), 1e-7);
}

TEST(Router, NegativeCorrectedScoresStillBeatOtherGroups) {
  // All scores of the kept groups are below zero: a mask of zeros, as some implementations have it, would choose
  // others.
  const Choice choice =
      run({.experts = 6, .top_k = 4, .groups = 3, .top_groups = 2}, {-3, -3, -9, -9, -3, -3}, {0, 1, 2, 3, 1, 0});
  EXPECT_EQ(choice.ids, (std::vector<int32_t>{1, 4, 0, 5}));
}

TEST(Router, NumbersThatAreNoneStillGiveDistinctExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = HUGE_VALF;
  for (RouterScore score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    for (const std::vector<float>& logits :
         {std::vector<float>(8, nan), {nan, 1, nan, 2, nan, nan, nan, nan}, {inf, inf, -inf, -inf, nan, 0, 1, 2}}) {
      const Choice choice = run({.experts = 8, .top_k = 4, .groups = 2, .top_groups = 2, .score = score}, {}, logits);
      for (size_t i = 0; i < choice.ids.size(); ++i) {
        EXPECT_GE(choice.ids[i], 0);
        EXPECT_LT(choice.ids[i], 8);
        for (size_t j = 0; j < i; ++j) EXPECT_NE(choice.ids[i], choice.ids[j]);
      }
    }
  }
  const Choice choice = run({.experts = 4, .top_k = 3}, {}, {nan, 1, 0, 2});
  EXPECT_EQ(choice.ids, (std::vector<int32_t>{3, 1, 2}));
}

TEST(Router, RefusesSpecsThatContradictThemselves) {
  for (const RouterSpec& spec : {RouterSpec{},
                                 {.experts = 4, .top_k = 5},
                                 {.experts = 100, .top_k = 65},
                                 {.experts = 4, .top_k = 0},
                                 {.experts = 9, .top_k = 2, .groups = 2, .top_groups = 1},
                                 {.experts = 8, .top_k = 3, .groups = 4, .top_groups = 1},
                                 {.experts = 8, .top_k = 2, .groups = 8, .top_groups = 4},
                                 {.experts = 8, .top_k = 2, .groups = 2, .top_groups = 3},
                                 {.experts = 200, .top_k = 2, .groups = 100, .top_groups = 3}}) {
    const auto checked = check_router(spec);
    ASSERT_FALSE(checked.has_value()) << spec.experts << " " << spec.top_k << " " << spec.groups;
    EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton::kernels
