// The KDA layer: against its formulas in double for both kinds of gate and decay; and one result however the rows are
// cut, batched and spread.
#include "models/layers/kda.h"

#include <gtest/gtest.h>

#include "kernels/kda_reference.h"
#include "models/layers/layer_test_data.h"

namespace baton::models {
namespace {

using test::Doubles;
using test::DType;
using test::Isa;
using test::product;
using test::random_floats;

constexpr int64_t kHidden = 96, kRows = 21;

struct Layer {
  KdaLayerShape shape;
  KdaWeights weights;
  std::vector<float> file_q, file_k, file_v;  // convolutions as checkpoints have them

  Layer(bool kimi_k3, DType dtype, Isa isa) {
    shape = {.heads = {.heads = 3, .key_dim = 32, .value_dim = 64, .conv_width = 4},
             .decay = kimi_k3 ? kernels::KdaDecay::kBoundedSigmoid : kernels::KdaDecay::kSoftplus,
             .lower_bound = -5,
             .norm_eps = 1e-5f,
             .decay_rank = 32,
             .gate_rank = kimi_k3 ? 0 : 64};
    const int64_t keys = shape.heads.key_features(), values = shape.heads.value_features();
    const auto linear = [&](int64_t out, int64_t in, unsigned seed) {
      return test::random_linear(out, in, dtype, isa, seed);
    };
    weights.q = linear(keys, kHidden, 1);
    weights.k = linear(keys, kHidden, 2);
    weights.v = linear(values, kHidden, 3);
    weights.f_a = linear(shape.decay_rank, kHidden, 4);
    weights.f_b = linear(keys, shape.decay_rank, 5);
    weights.beta = linear(shape.heads.heads, kHidden, 6);
    if (shape.gate_rank > 0) weights.gate_a = linear(shape.gate_rank, kHidden, 7);
    weights.gate = linear(values, shape.gate_rank > 0 ? shape.gate_rank : kHidden, 8);
    weights.o = linear(kHidden, values, 9);
    const auto convolution = [&](int64_t channels, unsigned seed, std::vector<float>& file) {
      file = random_floats(channels * 4, seed, 0.6f);
      std::vector<float> out(file.size());
      kernels::transpose_conv(file.data(), channels, 4, out.data());
      return out;
    };
    weights.q_conv = convolution(keys, 10, file_q);
    weights.k_conv = convolution(keys, 11, file_k);
    weights.v_conv = convolution(values, 12, file_v);
    weights.dt_bias = random_floats(keys, 13, 1, -2);
    weights.a_log = random_floats(5, 14, 0.7f);  // padded: two more than there are heads
    weights.o_norm = random_floats(shape.heads.value_dim, 15, 0.3f, 1);
  }

  struct State {
    std::vector<std::byte> bytes;
    bool operator==(const State&) const = default;
  };
  int64_t slot_bytes() const { return shape.state_head_bytes() * shape.heads.heads; }
  State state(int slots) const { return {std::vector<std::byte>(static_cast<size_t>(slots * slot_bytes()))}; }

  // x: [rows, hidden] -> [rows, hidden].
  std::vector<float> run(const std::vector<float>& x, std::span<const kernels::SequenceSlice> slices, State& state,
                         Isa isa, int threads) const {
    ComputePool pool({.threads = threads, .spin_us = 0});
    const int64_t rows = std::ssize(x) / kHidden;
    auto scratch = *KdaScratch::allocate(shape, rows);
    auto input = *QuantizedInput::allocate(rows, shape.heads.value_features());
    std::vector<float> y(x.size(), -9);
    input.set(x.data(), rows, kHidden);
    TeamStep team({}, rows);
    kda_forward(
        weights,
        {.shape = shape,
         .slices = slices,
         .state = {.base = state.bytes.data(), .slot_stride = slot_bytes(), .head_stride = shape.state_head_bytes()},
         .isa = isa},
        team, scratch, input, y.data(), kHidden, pool);
    return y;
  }
};

Doubles columns(const Doubles& x, int64_t width, int64_t from, int64_t count) {
  Doubles part;
  for (size_t r = 0; r < x.size() / static_cast<size_t>(width); ++r) {
    for (int64_t i = 0; i < count; ++i)
      part.push_back(x[r * static_cast<size_t>(width) + static_cast<size_t>(from + i)]);
  }
  return part;
}

Doubles reference(const Layer& layer, const std::vector<float>& rows) {
  const Doubles x(rows.begin(), rows.end());
  const kernels::KdaShape& heads = layer.shape.heads;
  const KdaWeights& w = layer.weights;
  const int64_t keys = heads.key_features(), values = heads.value_features();
  const Doubles q = product(w.q.weight, x), k = product(w.k.weight, x), v = product(w.v.weight, x);
  const Doubles r = product(w.f_b.weight, product(w.f_a.weight, x)), beta = product(w.beta.weight, x);
  const Doubles gate = product(w.gate.weight, w.gate_a ? product(w.gate_a->weight, x) : x);
  Doubles out(gate.size());
  for (int h = 0; h < heads.heads; ++h) {
    const auto part = [&](const std::vector<float>& all, int64_t count) {
      return Doubles(all.begin() + h * count, all.begin() + (h + 1) * count);
    };
    const kernels::test::KdaHeadInput head{.q = columns(q, keys, h * heads.key_dim, heads.key_dim),
                                           .k = columns(k, keys, h * heads.key_dim, heads.key_dim),
                                           .v = columns(v, values, h * heads.value_dim, heads.value_dim),
                                           .r = columns(r, keys, h * heads.key_dim, heads.key_dim),
                                           .beta = columns(beta, heads.heads, h, 1),
                                           .q_conv = part(layer.file_q, heads.key_dim * 4),
                                           .k_conv = part(layer.file_k, heads.key_dim * 4),
                                           .v_conv = part(layer.file_v, heads.value_dim * 4),
                                           .dt_bias = part(w.dt_bias, heads.key_dim),
                                           .a_log = w.a_log[static_cast<size_t>(h)]};
    Doubles state;
    const Doubles o = kernels::test::recurrent(
        kernels::test::prepare(head, heads, layer.shape.decay, layer.shape.lower_bound), state);
    for (int64_t t = 0; t < std::ssize(o) / heads.value_dim; ++t) {
      double squares = 0;
      for (int i = 0; i < heads.value_dim; ++i) squares += o[t * heads.value_dim + i] * o[t * heads.value_dim + i];
      const double scale = 1 / std::sqrt(squares / heads.value_dim + layer.shape.norm_eps);
      for (int i = 0; i < heads.value_dim; ++i) {
        const int64_t at = t * values + h * heads.value_dim + i;
        out[at] = o[t * heads.value_dim + i] * scale * w.o_norm[i] * test::sigmoid(gate[at]);
      }
    }
  }
  return product(w.o.weight, out);
}

class KdaLayer : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(KimiLinearAndK3, KdaLayer, testing::Bool());

TEST_P(KdaLayer, FollowsTheFormulasInDouble) {
  const auto x = random_floats(kRows * kHidden, 30);
  const kernels::SequenceSlice slice{.row_count = kRows, .state_slot = 0};
  for (Isa isa : test::isas()) {
    const Layer layer(GetParam(), DType::kF32, isa);
    auto state = layer.state(1);
    EXPECT_LT(test::relative_error(layer.run(x, {&slice, 1}, state, isa, 1), reference(layer, x)), 3e-6);
  }
}

TEST_P(KdaLayer, ChunkedBatchedAndThreadedAreWhole) {
  const auto x = random_floats(2 * kRows * kHidden, 31);
  const auto rows = [&](int64_t from, int64_t count) {
    return std::vector<float>(x.begin() + from * kHidden, x.begin() + (from + count) * kHidden);
  };
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kInt8Channel}) {
    for (Isa isa : test::isas()) {
      const Layer layer(GetParam(), dtype, isa);
      // Two sequences, each whole and alone.
      auto want_state = layer.state(2);
      std::vector<float> want;
      for (int s = 0; s < 2; ++s) {
        const kernels::SequenceSlice slice{.row_count = kRows, .state_slot = s};
        const auto y = layer.run(rows(s * kRows, kRows), {&slice, 1}, want_state, isa, 1);
        want.insert(want.end(), y.begin(), y.end());
      }
      // Both in one batch, then cut in three steps of unequal parts.
      for (int threads : {1, 2}) {
        auto state = layer.state(2);
        const std::vector<kernels::SequenceSlice> both = {{.row_count = kRows, .state_slot = 0},
                                                          {.row_begin = kRows, .row_count = kRows, .state_slot = 1}};
        EXPECT_TRUE(test::same_bits(layer.run(x, both, state, isa, threads), want)) << dtype_name(dtype);
        EXPECT_TRUE(state == want_state) << dtype_name(dtype);

        auto cut_state = layer.state(2);
        std::vector<float> got(x.size());
        for (const auto& [from, to] : {std::pair<int, int>{0, 1}, {1, 18}, {18, kRows}}) {
          std::vector<float> step = rows(from, to - from), second = rows(kRows + from, to - from);
          step.insert(step.end(), second.begin(), second.end());
          const int count = to - from;
          const std::vector<kernels::SequenceSlice> slices = {
              {.context_len = from, .row_count = count, .state_slot = 0},
              {.context_len = from, .row_begin = count, .row_count = count, .state_slot = 1}};
          const auto y = layer.run(step, slices, cut_state, isa, threads);
          std::copy_n(y.begin(), count * kHidden, got.begin() + from * kHidden);
          std::copy_n(y.begin() + count * kHidden, count * kHidden, got.begin() + (kRows + from) * kHidden);
        }
        EXPECT_TRUE(test::same_bits(got, want)) << dtype_name(dtype) << " " << isa_name(isa);
        EXPECT_TRUE(cut_state == want_state) << dtype_name(dtype) << " " << isa_name(isa);
      }
    }
  }
}

TEST(KdaLayerScratch, RefusesAShapeTheKernelCannotHold) {
  const KdaLayerShape shape{.heads = {.heads = 1, .key_dim = 512, .value_dim = 64, .conv_width = 4}, .decay_rank = 32};
  const auto scratch = KdaScratch::allocate(shape, 4);
  ASSERT_FALSE(scratch.has_value());
  EXPECT_NE(scratch.error().message().find("512"), std::string::npos) << scratch.error().message();
}

}  // namespace
}  // namespace baton::models
