// Attention residuals over a whole schedule of layers, against the formulas in double; and a stage border that nobody
// sees.
#include "models/layers/attn_res.h"

#include <gtest/gtest.h>

#include "models/layers/layer_test_data.h"

namespace baton::models {
namespace {

using tensor::Isa;
using test::Doubles;
using test::random_floats;

constexpr int64_t kRows = 6, kHidden = 40;
constexpr int kLayers = 8, kBlock = 3;  // boundaries at 0, 3, 6
constexpr float kEps = 1e-5f;

struct Weights {
  std::vector<float> norm[2 * kLayers + 1], projection[2 * kLayers + 1];
  std::vector<AttnResWeights> mixes;
  Weights() {
    for (unsigned i = 0; i < 2 * kLayers + 1; ++i) {
      norm[i] = random_floats(kHidden, 100 + i, 0.3f, 1);
      projection[i] = random_floats(kHidden, 200 + i, 0.4f);
      mixes.push_back(AttnResWeights::make(norm[i], projection[i]));
    }
  }
};

// What stands for attention and feed-forward here: any function of the mixed row.
template <typename T>
std::vector<T> block(const std::vector<T>& h, int index) {
  std::vector<T> y(h.size());
  for (size_t i = 0; i < h.size(); ++i) y[i] = static_cast<T>((index % 3 + 1) * 0.5) * h[i] + static_cast<T>(0.125);
  return y;
}
template <typename T>
void add_to(std::vector<T>& x, const std::vector<T>& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

struct Stage {
  AttnResBank bank = *AttnResBank::allocate(kRows + 1, 3, kHidden);
  ComputePool pool;
  Isa isa;
  const Weights& weights;
  std::vector<float> prefix, h;

  Stage(const Weights& w, Isa set, int threads)
      : pool({.threads = threads, .spin_us = 0}), isa(set), weights(w), h(kRows * kHidden) {}
  void start(const std::vector<float>& embedding) {
    prefix = embedding;
    bank.begin(std::ssize(embedding) / kHidden);
    h.resize(embedding.size());
  }
  void layers(int from, int to) {
    for (int i = from; i < to; ++i) {
      const bool boundary = i % kBlock == 0;
      if (boundary) bank.append(prefix.data(), pool);
      bank.mix(weights.mixes[2 * i], boundary ? nullptr : prefix.data(), kEps, h.data(), isa, pool);
      if (boundary) std::fill(prefix.begin(), prefix.end(), 0.0f);
      add_to(prefix, block(h, 2 * i));
      bank.mix(weights.mixes[2 * i + 1], prefix.data(), kEps, h.data(), isa, pool);
      add_to(prefix, block(h, 2 * i + 1));
    }
  }
  std::vector<float> end() {
    bank.mix(weights.mixes[2 * kLayers], prefix.data(), kEps, h.data(), isa, pool);
    return h;
  }
};

// One row, in double.
Doubles mix(const std::vector<Doubles>& sources, const std::vector<float>& norm, const std::vector<float>& projection) {
  Doubles a, h(kHidden, 0);
  double sum = 0;
  for (const Doubles& s : sources) {
    double squares = 0, e = 0;
    for (double x : s) squares += x * x;
    for (int64_t i = 0; i < kHidden; ++i) e += projection[i] * (s[i] / std::sqrt(squares / kHidden + kEps) * norm[i]);
    a.push_back(std::exp(e));
    sum += a.back();
  }
  for (size_t j = 0; j < sources.size(); ++j) {
    for (int64_t i = 0; i < kHidden; ++i) h[i] += a[j] / sum * sources[j][i];
  }
  return h;
}

Doubles reference(const Weights& w, Doubles prefix) {
  std::vector<Doubles> bank;
  const auto with_prefix = [&] {
    std::vector<Doubles> sources = bank;
    sources.push_back(prefix);
    return sources;
  };
  for (int i = 0; i < kLayers; ++i) {
    const bool boundary = i % kBlock == 0;
    if (boundary) bank.push_back(prefix);
    const Doubles a = block(mix(boundary ? bank : with_prefix(), w.norm[2 * i], w.projection[2 * i]), 2 * i);
    if (boundary)
      prefix = a;
    else
      add_to(prefix, a);
    add_to(prefix, block(mix(with_prefix(), w.norm[2 * i + 1], w.projection[2 * i + 1]), 2 * i + 1));
  }
  return mix(with_prefix(), w.norm[2 * kLayers], w.projection[2 * kLayers]);
}

TEST(AttnRes, FollowsTheFormulasOverAllLayers) {
  const Weights weights;
  const auto embedding = random_floats(kRows * kHidden, 1);
  Stage whole(weights, Isa::kPortable, 1);
  whole.start(embedding);
  whole.layers(0, kLayers);
  const auto got = whole.end();
  Doubles want;
  for (int64_t r = 0; r < kRows; ++r) {
    const Doubles row =
        reference(weights, Doubles(embedding.begin() + r * kHidden, embedding.begin() + (r + 1) * kHidden));
    want.insert(want.end(), row.begin(), row.end());
  }
  EXPECT_LT(test::relative_error(got, want), 1e-6);
  EXPECT_EQ(whole.bank.count(), 3);

  for (Isa isa : test::isas()) {
    for (int threads : {1, 3}) {
      Stage again(weights, isa, threads);
      again.start(embedding);
      again.layers(0, kLayers);
      EXPECT_TRUE(test::same_bits(again.end(), got)) << isa_name(isa);
      // A row alone.
      again.start(std::vector<float>(embedding.begin() + 2 * kHidden, embedding.begin() + 3 * kHidden));
      again.layers(0, kLayers);
      EXPECT_TRUE(
          test::same_bits(again.end(), std::vector<float>(got.begin() + 2 * kHidden, got.begin() + 3 * kHidden)));
    }
  }
}

TEST(AttnRes, AStageBorderChangesNothing) {
  const Weights weights;
  const auto embedding = random_floats(kRows * kHidden, 1);
  Stage whole(weights, Isa::kPortable, 1);
  whole.start(embedding);
  whole.layers(0, kLayers);
  const auto want = whole.end();
  for (int border = 0; border <= kLayers; ++border) {
    Stage first(weights, Isa::kPortable, 1), second(weights, Isa::kPortable, 2);
    first.start(embedding);
    first.layers(0, border);
    std::vector<float> packed(static_cast<size_t>(first.bank.packed_floats()));
    first.bank.pack(first.prefix.data(), packed.data(), first.pool);
    EXPECT_EQ(std::ssize(packed), kRows * (1 + first.bank.count()) * kHidden);
    second.prefix.assign(kRows * kHidden, -1.0f);
    second.bank.unpack(packed.data(), kRows, first.bank.count(), second.prefix.data(), second.pool);
    second.layers(border, kLayers);
    EXPECT_TRUE(test::same_bits(second.end(), want)) << "border " << border;
  }
}

TEST(AttnRes, RefusesMoreBlocksThanAMixCanHold) {
  EXPECT_EQ(AttnResBank::allocate(1, 64, 8).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(AttnResBank::allocate(1, 0, 8).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(AttnResBank::allocate(1, 63, 8).has_value());
}

}  // namespace
}  // namespace baton::models
