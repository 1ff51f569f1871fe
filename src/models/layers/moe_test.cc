// The mixture of experts: against its formulas in double, plain and latent; rows that don't depend on each other, on
// the passes they are cut into, on threads or on the instruction set.
#include "models/layers/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/layers/layer_test_data.h"

namespace baton::models {
namespace {

using test::Doubles;
using test::DType;
using test::Isa;
using test::product;
using test::random_floats;

constexpr int64_t kHidden = 64, kRows = 20;

struct Variant {
  const char* name;
  int experts, top_k, groups, top_groups;
  bool softmax, renormalize, shared, latent, latent_norm, situ, correction;
  float scale;
};
constexpr Variant kVariants[] = {
    {"deepseek_v3", 16, 4, 4, 2, false, true, true, false, false, false, true, 2.5f},
    {"kimi_k3", 24, 5, 1, 1, false, true, true, true, true, true, true, 1},
    {"latent_without_norm_or_shared", 6, 2, 1, 1, false, true, false, true, false, false, true, 1},
    {"softmax_without_shared", 8, 3, 1, 1, true, false, false, false, false, false, false, 1},
};

struct Layer {
  MoeShape shape;
  MoeWeights weights;

  Layer(const Variant& v, DType dtype, Isa isa, int64_t width = 64) {
    shape = {.router = {.experts = v.experts,
                        .top_k = v.top_k,
                        .groups = v.groups,
                        .top_groups = v.top_groups,
                        .score = v.softmax ? kernels::RouterScore::kSoftmax : kernels::RouterScore::kSigmoid,
                        .renormalize = v.renormalize,
                        .scale = v.scale},
             .hidden = kHidden,
             .expert_features = v.latent ? width / 2 : kHidden,
             .intermediate = 96,
             .shared_intermediate = v.shared ? 128 : 0,
             .activation = {.kind = v.situ ? GatedActivation::Kind::kSitu : GatedActivation::Kind::kSilu}};
    const auto linear = [&](int64_t out, int64_t in, unsigned seed) {
      return test::random_linear(out, in, DType::kF32, isa, seed);
    };
    weights.router = linear(v.experts, kHidden, 1);
    if (v.correction) weights.correction = random_floats(v.experts, 2, 0.1f);
    for (int e = 0; e < v.experts; ++e) {
      const auto seed = static_cast<unsigned>(100 + 3 * e);
      weights.gate.push_back(test::random_matrix(shape.intermediate, shape.expert_features, dtype, isa, seed));
      weights.up.push_back(test::random_matrix(shape.intermediate, shape.expert_features, dtype, isa, seed + 1));
      weights.down.push_back(test::random_matrix(shape.expert_features, shape.intermediate, dtype, isa, seed + 2));
    }
    if (v.shared) {
      weights.shared =
          MlpWeights{.gate = linear(128, kHidden, 3), .up = linear(128, kHidden, 4), .down = linear(kHidden, 128, 5)};
    }
    if (!v.latent) return;
    weights.latent_down = linear(shape.expert_features, kHidden, 6);
    weights.latent_up = linear(kHidden, shape.expert_features, 7);
    if (v.latent_norm) weights.latent_norm = random_floats(shape.expert_features, 8, 0.3f, 1);
  }

  std::vector<float> run(const std::vector<float>& x, Isa isa, int threads, int64_t pass_rows) const {
    ComputePool pool({.threads = threads, .spin_us = 0});
    const int64_t rows = std::ssize(x) / kHidden;
    auto scratch = *MoeScratch::allocate(shape, rows, pass_rows);
    auto input = *QuantizedInput::allocate(rows, 128);
    std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
    // Twice: nothing of a call may be left over for the next.
    for (int i = 0; i < 2; ++i) {
      input.set(x.data(), rows, kHidden);
      TeamStep team({}, rows);
      moe_forward(weights, {.shape = shape, .x = x.data(), .isa = isa}, team, scratch, input, y.data(), pool);
    }
    return y;
  }
};

Doubles feed_forward(const GatedActivation& activation, const kernels::PackedMatrix& gate,
                     const kernels::PackedMatrix& up, const kernels::PackedMatrix& down, const Doubles& x) {
  Doubles g = product(gate, x);
  const Doubles u = product(up, x);
  for (size_t i = 0; i < g.size(); ++i) {
    const double s = test::sigmoid(g[i]);
    g[i] = activation.kind == GatedActivation::Kind::kSilu ? g[i] * s * u[i]
                                                           : 4 * std::tanh(g[i] / 4) * s * 25 * std::tanh(u[i] / 25);
  }
  return product(down, g);
}

// One row. Scores are made in double; the choice is by the plainest of means.
Doubles reference_row(const Layer& layer, const Doubles& x) {
  const kernels::RouterSpec& spec = layer.shape.router;
  const MoeWeights& w = layer.weights;
  Doubles s = product(w.router.weight, x);
  if (spec.score == kernels::RouterScore::kSoftmax) {
    for (double& v : s) v = std::exp(v);
    const double sum = std::accumulate(s.begin(), s.end(), 0.0);
    for (double& v : s) v /= sum;
  } else {
    for (double& v : s) v = test::sigmoid(v);
  }
  Doubles c = s;
  for (size_t e = 0; e < w.correction.size(); ++e) c[e] += w.correction[e];
  const int size = spec.experts / spec.groups;
  std::vector<std::pair<double, int>> groups;
  for (int g = 0; g < spec.groups; ++g) {
    Doubles members(c.begin() + g * size, c.begin() + (g + 1) * size);
    std::ranges::sort(members, std::greater());
    groups.emplace_back(-(members[0] + members[1]), g);
  }
  std::ranges::sort(groups);
  std::vector<std::pair<double, int>> open;
  for (int i = 0; i < spec.top_groups; ++i) {
    for (int e = groups[i].second * size; e < (groups[i].second + 1) * size; ++e) open.emplace_back(-c[e], e);
  }
  std::ranges::sort(open);
  double sum = 0;
  for (int i = 0; i < spec.top_k; ++i) sum += s[open[i].second];
  Doubles z = w.latent_down ? product(w.latent_down->weight, x) : x, m(z.size(), 0);
  for (int i = 0; i < spec.top_k; ++i) {
    const int e = open[i].second;
    const Doubles out = feed_forward(layer.shape.activation, w.gate[e], w.up[e], w.down[e], z);
    for (size_t j = 0; j < m.size(); ++j) m[j] += s[e] / (spec.renormalize ? sum : 1) * spec.scale * out[j];
  }
  if (w.latent_up) {
    double squares = 0;
    for (double v : m) squares += v * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(m.size()) + layer.shape.norm_eps);
    for (size_t i = 0; i < w.latent_norm.size(); ++i) m[i] *= scale * w.latent_norm[i];
    m = product(w.latent_up->weight, m);
  }
  if (w.shared) {
    const Doubles shared =
        feed_forward(layer.shape.activation, w.shared->gate.weight, w.shared->up.weight, w.shared->down.weight, x);
    for (size_t i = 0; i < m.size(); ++i) m[i] += shared[i];
  }
  return m;
}

class Moe : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Families, Moe, testing::ValuesIn(kVariants),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST_P(Moe, FollowsTheFormulasInDouble) {
  const auto x = random_floats(kRows * kHidden, 50);
  for (Isa isa : test::isas()) {
    const Layer layer(GetParam(), DType::kF32, isa);
    const auto y = layer.run(x, isa, 1, MoeScratch::kPassRows);
    for (int64_t r = 0; r < kRows; ++r) {
      const Doubles want = reference_row(layer, Doubles(x.begin() + r * kHidden, x.begin() + (r + 1) * kHidden));
      EXPECT_LT(test::relative_error({y.begin() + r * kHidden, y.begin() + (r + 1) * kHidden}, want), 3e-6)
          << isa_name(isa) << " row " << r;
    }
  }
}

constexpr int64_t kFewRows = 11;

TEST_P(Moe, ARowDoesNotKnowItsNeighbours) {
  const auto x = random_floats(kFewRows * kHidden, 51);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kMxfp4, DType::kInt4Group32, DType::kInt8Channel,
                      DType::kInt8Static, DType::kQ8_0}) {
    std::vector<float> of_all_isas;
    for (Isa isa : test::isas()) {
      const Layer layer(GetParam(), dtype, isa);
      std::vector<float> alone;
      for (int64_t r = 0; r < kFewRows; ++r) {
        const auto y = layer.run({x.begin() + r * kHidden, x.begin() + (r + 1) * kHidden}, isa, 1, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (float value : alone) ASSERT_TRUE(std::isfinite(value));
      const auto expect_alone = [&](int64_t pass_rows, int threads) {
        EXPECT_TRUE(test::same_bits(layer.run(x, isa, threads, pass_rows), alone))
            << dtype_name(dtype) << " " << isa_name(isa) << " pass=" << pass_rows << " threads=" << threads;
      };
      expect_alone(5, 3);
      if (isa != Isa::kPortable) {  // which is slow
        expect_alone(1, 2);
        expect_alone(kFewRows, 1);
        expect_alone(MoeScratch::kPassRows, 2);
      }
      if (dtype == DType::kBF16) continue;  // avx512 multiplies bf16 by an instruction with a rounding of its own
      if (of_all_isas.empty()) of_all_isas = alone;
      EXPECT_TRUE(test::same_bits(alone, of_all_isas)) << dtype_name(dtype) << " " << isa_name(isa);
    }
  }
}

TEST(ExpertPlan, SortsPairsByExpertThenRow) {
  ExpertPlan plan(5, 12);
  const std::vector<int32_t> ids = {3, 0, 1, 3, 0, 4, 3, 1};
  for (int again = 0; again < 2; ++again) {
    plan.sort(ids.data(), 4, 2);
    EXPECT_EQ(plan.pairs(), 8);
    EXPECT_EQ(plan.begins(), (std::vector<int64_t>{0, 2, 4, 4, 7, 8}));
    EXPECT_EQ(std::vector<int32_t>(plan.source_rows(), plan.source_rows() + 8),
              (std::vector<int32_t>{0, 2, 1, 3, 0, 1, 3, 2}));
    EXPECT_EQ(std::vector<int32_t>(plan.places(), plan.places() + 8), (std::vector<int32_t>{4, 0, 2, 5, 1, 7, 6, 3}));
  }
}

TEST(MoeScratchSizes, RefusesARouterThatContradictsItself) {
  const MoeShape shape{.router = {.experts = 4, .top_k = 5}, .hidden = 32, .expert_features = 32, .intermediate = 32};
  EXPECT_EQ(MoeScratch::allocate(shape, 8).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace baton::models
