// Kimi Delta Attention: against both forms of its formulas in double; and one result, bit for bit, however the tokens
// are cut, batched and spread over threads, on every instruction set.
#include "kernels/kda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kda_reference.h"
#include "kernels/row_test_data.h"

namespace baton::kernels {
namespace {

using tensor::Isa;
using test::Doubles;
using test::isas;

// Slots of state, and outputs of the rows.
struct Memory {
  std::vector<std::byte> states;
  std::vector<float> out;
  bool operator==(const Memory& other) const {
    return states == other.states && out.size() == other.out.size() &&
           std::memcmp(out.data(), other.out.data(), out.size() * sizeof(float)) == 0;
  }
};

// Random weights and rows of one layer. Row strides are wider than the rows.
struct Problem {
  KdaShape shape;
  KdaDecay decay;
  int rows;
  int64_t key_stride, value_stride;
  std::vector<float> q, k, v, r, beta, file_q, file_k, file_v, q_conv, k_conv, v_conv, dt_bias, a_log;

  Problem(const KdaShape& s, KdaDecay d, int row_count, unsigned seed = 1)
      : shape(s), decay(d), rows(row_count), key_stride(s.key_features() + 5), value_stride(s.value_features() + 3) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t count, float deviation, float mean = 0) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = mean + deviation * normal(generator);
      return values;
    };
    q = fill(rows * key_stride, 1);
    k = fill(rows * key_stride, 1);
    v = fill(rows * value_stride, 1);
    r = fill(rows * key_stride, 1.5f);
    beta = fill(rows * s.heads, 1.5f);
    file_q = fill(s.key_features() * s.conv_width, 0.6f);
    file_k = fill(s.key_features() * s.conv_width, 0.6f);
    file_v = fill(s.value_features() * s.conv_width, 0.6f);
    dt_bias = fill(s.key_features(), 1, -3);
    a_log = fill(s.heads, 0.7f, 0.3f);
    q_conv = transposed(file_q, s.key_features());
    k_conv = transposed(file_k, s.key_features());
    v_conv = transposed(file_v, s.value_features());
  }
  std::vector<float> transposed(const std::vector<float>& file, int64_t channels) const {
    std::vector<float> out(file.size());
    transpose_conv(file.data(), channels, shape.conv_width, out.data());
    return out;
  }

  int64_t head_bytes() const { return kda_state_head_bytes(shape.key_dim, shape.value_dim, shape.conv_width); }
  int64_t slot_bytes() const { return head_bytes() * shape.heads + 64; }
  // Every byte of `slots` slots is a NaN's.
  Memory memory(int slots) const {
    return {.states = std::vector<std::byte>(static_cast<size_t>(slots * slot_bytes()), std::byte{0xff}),
            .out = std::vector<float>(static_cast<size_t>(rows * shape.value_features()), -7)};
  }

  void run(std::span<const SequenceSlice> slices, Memory& memory, Isa isa, int threads) const {
    ComputePool pool({.threads = threads, .spin_us = 0});
    kda({.shape = shape,
         .decay = decay,
         .lower_bound = -5,
         .q = q.data(),
         .k = k.data(),
         .v = v.data(),
         .q_stride = key_stride,
         .k_stride = key_stride,
         .v_stride = value_stride,
         .decay_input = r.data(),
         .decay_stride = key_stride,
         .beta = beta.data(),
         .beta_stride = shape.heads,
         .q_conv = q_conv.data(),
         .k_conv = k_conv.data(),
         .v_conv = v_conv.data(),
         .dt_bias = dt_bias.data(),
         .a_log = a_log.data(),
         .state = {.base = memory.states.data(), .slot_stride = slot_bytes(), .head_stride = head_bytes()},
         .out = memory.out.data(),
         .out_stride = shape.value_features(),
         .isa = isa},
        slices, pool);
  }
  // All rows as one sequence in slot 0, cut after the given numbers of rows.
  Memory run_cut(const std::vector<int>& cuts, Isa isa = Isa::kPortable, int threads = 1) const {
    Memory result = memory(1);
    int begin = 0;
    const auto step = [&](int end) {
      const SequenceSlice slice{.context_len = begin, .row_begin = begin, .row_count = end - begin, .state_slot = 0};
      run({&slice, 1}, result, isa, threads);
      begin = end;
    };
    for (int cut : cuts) step(cut);
    step(rows);
    return result;
  }

  // The same rows and weights as a rank that owns one head has them.
  Problem of_head(int head) const {
    Problem one = *this;
    one.shape.heads = 1;
    const auto keep = [&](std::vector<float>& x, int64_t count) {
      x = std::vector<float>(x.begin() + head * count, x.begin() + (head + 1) * count);
    };
    const auto keep_columns = [&](std::vector<float>& x, int64_t stride, int dim) {
      for (int t = 0; t < rows; ++t) std::copy_n(&x[t * stride + int64_t{head} * dim], dim, &x[t * stride]);
    };
    keep_columns(one.q, key_stride, shape.key_dim);
    keep_columns(one.k, key_stride, shape.key_dim);
    keep_columns(one.v, value_stride, shape.value_dim);
    keep_columns(one.r, key_stride, shape.key_dim);
    for (int t = 0; t < rows; ++t) one.beta[t] = beta[t * shape.heads + head];
    keep(one.file_q, int64_t{shape.key_dim} * shape.conv_width);
    keep(one.file_k, int64_t{shape.key_dim} * shape.conv_width);
    keep(one.file_v, int64_t{shape.value_dim} * shape.conv_width);
    keep(one.dt_bias, shape.key_dim);
    keep(one.a_log, 1);
    one.q_conv = one.transposed(one.file_q, shape.key_dim);
    one.k_conv = one.transposed(one.file_k, shape.key_dim);
    one.v_conv = one.transposed(one.file_v, shape.value_dim);
    return one;
  }

  test::KdaHeadInput head_input(int head) const {
    const auto rows_of = [&](const std::vector<float>& x, int64_t stride, int dim) {
      Doubles result;
      for (int t = 0; t < rows; ++t) {
        for (int i = 0; i < dim; ++i) result.push_back(x[t * stride + int64_t{head} * dim + i]);
      }
      return result;
    };
    const auto part = [&](const std::vector<float>& x, int64_t count) {
      return Doubles(x.begin() + head * count, x.begin() + (head + 1) * count);
    };
    return {.q = rows_of(q, key_stride, shape.key_dim),
            .k = rows_of(k, key_stride, shape.key_dim),
            .v = rows_of(v, value_stride, shape.value_dim),
            .r = rows_of(r, key_stride, shape.key_dim),
            .beta = rows_of(beta, shape.heads, 1),
            .q_conv = part(file_q, int64_t{shape.key_dim} * shape.conv_width),
            .k_conv = part(file_k, int64_t{shape.key_dim} * shape.conv_width),
            .v_conv = part(file_v, int64_t{shape.value_dim} * shape.conv_width),
            .dt_bias = part(dt_bias, shape.key_dim),
            .a_log = a_log[head]};
  }
};

double relative_error(const Doubles& got, const Doubles& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / size);
}

struct Case {
  KdaShape shape;
  KdaDecay decay;
};
class Kda : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, Kda,
    testing::Values(Case{{2, 128, 128, 4}, KdaDecay::kBoundedSigmoid}, Case{{2, 128, 128, 4}, KdaDecay::kSoftplus},
                    Case{{3, 32, 32, 4}, KdaDecay::kBoundedSigmoid}, Case{{3, 24, 40, 4}, KdaDecay::kSoftplus},
                    Case{{1, 7, 5, 2}, KdaDecay::kSoftplus}, Case{{2, 17, 100, 3}, KdaDecay::kBoundedSigmoid},
                    Case{{1, 16, 16, 1}, KdaDecay::kSoftplus}, Case{{1, 256, 256, 8}, KdaDecay::kBoundedSigmoid}));

constexpr int kTokens = 53;

TEST_P(Kda, FollowsTheFormulasInDouble) {
  const Problem problem(GetParam().shape, GetParam().decay, kTokens);
  const KdaShape& shape = problem.shape;
  const Memory result = problem.run_cut({});
  for (int h = 0; h < shape.heads; ++h) {
    const test::KdaTokens tokens = test::prepare(problem.head_input(h), shape, problem.decay, -5);
    Doubles state, state_of_chunks;
    const Doubles want = test::recurrent(tokens, state);
    // The two forms of the formulas agree: the reference is not wrong in the same way as the kernel.
    EXPECT_LT(relative_error(test::chunked(tokens, 16, state_of_chunks), want), 1e-12);
    EXPECT_LT(relative_error(state_of_chunks, state), 1e-12);

    Doubles got;
    for (int t = 0; t < kTokens; ++t) {
      const float* row = result.out.data() + t * shape.value_features() + int64_t{h} * shape.value_dim;
      got.insert(got.end(), row, row + shape.value_dim);
    }
    EXPECT_LT(relative_error(got, want), 2e-6) << "head " << h;
    const auto* s = reinterpret_cast<const float*>(result.states.data() + h * problem.head_bytes());
    EXPECT_LT(relative_error(Doubles(s, s + state.size()), state), 2e-6) << "head " << h;
  }
}

TEST_P(Kda, KeepsTheLastInputsOfTheConvolution) {
  const Problem problem(GetParam().shape, GetParam().decay, 9);
  const KdaShape& shape = problem.shape;
  const Memory result = problem.run_cut({1, 2, 6});
  for (int h = 0; h < shape.heads; ++h) {
    const auto* window = reinterpret_cast<const float*>(result.states.data() + h * problem.head_bytes()) +
                         shape.key_dim * shape.value_dim;
    const auto expect_rows = [&](const std::vector<float>& x, int64_t stride, int dim) {
      for (int j = 0; j < shape.conv_width - 1; ++j, window += dim) {
        const int row = problem.rows - (shape.conv_width - 1) + j;
        for (int i = 0; i < dim; ++i) EXPECT_EQ(window[i], x[row * stride + int64_t{h} * dim + i]);
      }
    };
    expect_rows(problem.q, problem.key_stride, shape.key_dim);
    expect_rows(problem.k, problem.key_stride, shape.key_dim);
    expect_rows(problem.v, problem.value_stride, shape.value_dim);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(window), result.states.data() + (h + 1) * problem.head_bytes());
  }
}

TEST_P(Kda, ChunkedIsWholeOnEveryIsaAndThreadCount) {
  const Problem problem(GetParam().shape, GetParam().decay, kTokens);
  const Memory want = problem.run_cut({});
  std::vector<int> one_by_one;
  for (int t = 1; t < kTokens; ++t) one_by_one.push_back(t);
  for (Isa isa : isas()) {
    for (int threads : isa == Isa::kPortable ? std::vector{3} : std::vector{1, 2, 3}) {  // portable is slow
      for (const std::vector<int>& cuts : {std::vector<int>{}, {16, 32}, {1, 17, 18, 50}, {52}, one_by_one}) {
        EXPECT_TRUE(problem.run_cut(cuts, isa, threads) == want)
            << isa_name(isa) << " threads=" << threads << " cuts=" << cuts.size();
      }
    }
  }
}

TEST_P(Kda, BatchedIsAlone) {
  // Four sequences in slots of their own; 0 and 2 are in mid-stream, 1 and 3 begin.
  const Problem problem(GetParam().shape, GetParam().decay, kTokens);
  const std::vector<SequenceSlice> before = {{.row_begin = 0, .row_count = 11, .state_slot = 3},
                                             {.row_begin = 11, .row_count = 2, .state_slot = 0}};
  const std::vector<SequenceSlice> step = {{.context_len = 11, .row_begin = 13, .row_count = 1, .state_slot = 3},
                                           {.row_begin = 14, .row_count = 20, .state_slot = 1},
                                           {.context_len = 2, .row_begin = 34, .row_count = 18, .state_slot = 0},
                                           {.row_begin = 52, .row_count = 1, .state_slot = 2}};
  Memory alone = problem.memory(4);
  problem.run(before, alone, Isa::kPortable, 1);
  const Memory begun = alone;
  for (const SequenceSlice& slice : step) problem.run({&slice, 1}, alone, Isa::kPortable, 1);
  for (Isa isa : isas()) {
    for (int threads : {1, 2, 4}) {
      Memory batched = begun;
      problem.run(step, batched, isa, threads);
      EXPECT_TRUE(batched == alone) << isa_name(isa) << " threads=" << threads;
    }
  }
}

TEST_P(Kda, AHeadOnARankOfItsOwnIsTheSame) {
  const Problem problem(GetParam().shape, GetParam().decay, 23);
  const Isa isa = tensor::detect_isa();
  const Memory all = problem.run_cut({9}, isa, 2);
  for (int h = 0; h < problem.shape.heads; ++h) {
    const Memory one = problem.of_head(h).run_cut({9}, isa);
    EXPECT_EQ(std::memcmp(one.states.data(), all.states.data() + h * problem.head_bytes(),
                          static_cast<size_t>(problem.head_bytes())),
              0);
    for (int t = 0; t < problem.rows; ++t) {
      EXPECT_EQ(std::memcmp(one.out.data() + t * problem.shape.value_dim,
                            all.out.data() + t * problem.shape.value_features() + int64_t{h} * problem.shape.value_dim,
                            static_cast<size_t>(problem.shape.value_dim) * sizeof(float)),
                0);
    }
  }
}

TEST(KdaShapeCheck, RefusesWhatTheKernelCannotHold) {
  EXPECT_TRUE(check_kda_shape({1, 256, 256, 8}).has_value());
  for (const KdaShape& shape :
       {KdaShape{0, 8, 8, 4}, {1, 257, 8, 4}, {1, 8, 257, 4}, {1, 8, 8, 9}, {1, 0, 8, 4}, {1, 8, 8, 0}}) {
    const auto checked = check_kda_shape(shape);
    ASSERT_FALSE(checked.has_value());
    EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton::kernels
