// The head of kda_ops.h over the lane type Vec of the including file.
//
// A run of up to kRun tokens is prepared (convolution, norms, gates); then S is walked in blocks of kColumns * 16
// values, which are independent of each other: a block stays in the first-level cache while all tokens of the run pass.
// The update of a token and the sums of the next one share a pass.
#pragma once

#include <cstring>

#include "kernels/kda_ops.h"
#include "kernels/lanes_impl.h"
#include "kernels/math_impl.h"

namespace baton::kernels {
namespace {

constexpr int kRun = 16;
constexpr int kColumns = Vec::kCols >= 4 ? 2 : 1;

// What the columns of S need of a run of tokens; row t of each is token t.
struct KdaRun {
  alignas(64) float q[kRun][kKdaMaxDim];  // normed; then times exp(g)
  alignas(64) float k[kRun][kKdaMaxDim];  // normed
  alignas(64) float decayed_k[kRun][kKdaMaxDim];
  alignas(64) float decay[kRun][kKdaMaxDim];  // exp(g)
  alignas(64) float v[kRun][kKdaMaxDim];
  float qk[kRun];
  float beta[kRun];
};

inline __attribute__((always_inline)) Vec silu(Vec x) { return x / (Vec::set(1) + math_impl::exp(Vec::set(0) - x)); }

// A stream of inputs of one head's convolution: the window, then the run's rows.
struct ConvInput {
  float* window;  // [width - 1][dim]
  const float* rows;
  int64_t stride;
  int dim;
  int history;  // width - 1

  const float* at(int64_t t) const { return t < 0 ? window + (history + t) * dim : rows + t * stride; }
};

// out[t] = silu(conv) for the n tokens of the run; then the window moves on by n.
inline void convolve(const ConvInput& in, const float* weights, int64_t channels, int n, float (*out)[kKdaMaxDim]) {
  for (int t = 0; t < n; ++t) {
    for_lanes(in.dim, [&](int64_t i, int lanes) {
      Vec sum = load_lanes(weights + i, lanes) * load_lanes(in.at(t - in.history) + i, lanes);
      for (int j = 1; j <= in.history; ++j) {
        sum = Vec::fma(load_lanes(weights + j * channels + i, lanes), load_lanes(in.at(t - in.history + j) + i, lanes),
                       sum);
      }
      store_lanes(silu(sum), out[t] + i, lanes);
    });
  }
  for (int j = 0; j < in.history; ++j) {
    std::memmove(in.window + j * in.dim, in.at(n - in.history + j), static_cast<size_t>(in.dim) * sizeof(float));
  }
}

inline float dot(const float* a, const float* b, int dim) {
  Vec sum = Vec::set(0);
  for_lanes(dim,
            [&](int64_t i, int lanes) { sum = Vec::fma(load_lanes(a + i, lanes), load_lanes(b + i, lanes), sum); });
  return sum.reduce_add();
}

inline void normalize(float* x, int dim, float epsilon, float scale) {
  const Vec factor = Vec::set(1.0f / __builtin_sqrtf(dot(x, x, dim) + epsilon) * scale);
  for_lanes(dim, [&](int64_t i, int lanes) { store_lanes(load_lanes(x + i, lanes) * factor, x + i, lanes); });
}

inline __attribute__((always_inline)) Vec log_decay(const KdaArgs& args, Vec x, Vec rate) {
  if (args.decay == KdaDecay::kBoundedSigmoid) return Vec::set(args.lower_bound) * math_impl::sigmoid(rate * x);
  return (Vec::set(0) - rate) * math_impl::softplus(x);
}

// decay, decayed k and decayed q of token t from its row of r.
inline void apply_decay(const KdaArgs& args, KdaRun& run, int t, const float* r, const float* dt_bias, float rate) {
  for_lanes(args.shape.key_dim, [&](int64_t i, int lanes) {
    const Vec x = load_lanes(r + i, lanes) + load_lanes(dt_bias + i, lanes);
    const Vec decay = math_impl::exp(log_decay(args, x, Vec::set(rate)));
    store_lanes(decay, run.decay[t] + i, lanes);
    store_lanes(load_lanes(run.k[t] + i, lanes) * decay, run.decayed_k[t] + i, lanes);
    store_lanes(load_lanes(run.q[t] + i, lanes) * decay, run.q[t] + i, lanes);
  });
}

inline void prepare_run(const KdaArgs& args, int head, float rate, float* window, int64_t row, int n, KdaRun& run) {
  const KdaShape& shape = args.shape;
  const int64_t key = int64_t{head} * shape.key_dim, value = int64_t{head} * shape.value_dim;
  const int64_t key_features = int64_t{shape.heads} * shape.key_dim;
  const int64_t value_features = int64_t{shape.heads} * shape.value_dim;
  const int history = shape.conv_width - 1;
  const auto input = [&](float* at, const float* rows, int64_t stride, int64_t offset, int dim) {
    return ConvInput{
        .window = at, .rows = rows + row * stride + offset, .stride = stride, .dim = dim, .history = history};
  };
  float* k_window = window + history * shape.key_dim;
  float* v_window = k_window + history * shape.key_dim;
  convolve(input(window, args.q, args.q_stride, key, shape.key_dim), args.q_conv + key, key_features, n, run.q);
  convolve(input(k_window, args.k, args.k_stride, key, shape.key_dim), args.k_conv + key, key_features, n, run.k);
  convolve(input(v_window, args.v, args.v_stride, value, shape.value_dim), args.v_conv + value, value_features, n,
           run.v);
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(shape.key_dim));
  for (int t = 0; t < n; ++t) {
    normalize(run.q[t], shape.key_dim, args.unit_epsilon, scale);
    normalize(run.k[t], shape.key_dim, args.unit_epsilon, 1.0f);
    run.qk[t] = dot(run.q[t], run.k[t], shape.key_dim);
    apply_decay(args, run, t, args.decay_input + (row + t) * args.decay_stride + key, args.dt_bias + key, rate);
    run.beta[t] = math_impl::sigmoid(Vec::set(args.beta[(row + t) * args.beta_stride + head])).first();
  }
}

// C vectors of values of every key of S, over the run's n tokens. kShort: the last vector (C = 1) has `lanes` lanes.
template <int C, bool kShort>
struct KdaColumns {
  const KdaRun& run;
  float* s;  // first value of key 0
  int64_t stride;
  int keys;
  int lanes;

  struct Sums {
    Vec k[C], q[C];
  };

  inline __attribute__((always_inline)) Vec load(const float* p) const {
    return kShort ? Vec::load_n(p, lanes) : Vec::load(p);
  }
  inline __attribute__((always_inline)) void store(Vec v, float* p) const {
    if (kShort)
      v.store_n(p, lanes);
    else
      v.store(p);
  }

  static inline __attribute__((always_inline)) void clear(Sums& sums) {
    for (int c = 0; c < C; ++c) sums.k[c] = sums.q[c] = Vec::set(0);
  }
  inline __attribute__((always_inline)) void accumulate(Sums& sums, int t, int d, int c, Vec value) const {
    sums.k[c] = Vec::fma(Vec::set(run.decayed_k[t][d]), value, sums.k[c]);
    sums.q[c] = Vec::fma(Vec::set(run.q[t][d]), value, sums.q[c]);
  }
  inline __attribute__((always_inline)) Vec updated(int t, int d, int c, const Vec (&u)[C]) const {
    return Vec::fma(Vec::set(run.k[t][d]), u[c], load(s + d * stride + 16 * c) * Vec::set(run.decay[t][d]));
  }

  // Calls each(partial sums, d) for even and odd keys; returns even + odd.
  template <typename Each>
  inline __attribute__((always_inline)) Sums over_keys(Each each) const {
    Sums even, odd;
    clear(even);
    clear(odd);
    int d = 0;
    for (; d + 2 <= keys; d += 2) {
      each(even, d);
      each(odd, d + 1);
    }
    if (d < keys) each(even, d);
    for (int c = 0; c < C; ++c) {
      even.k[c] = even.k[c] + odd.k[c];
      even.q[c] = even.q[c] + odd.q[c];
    }
    return even;
  }

  Sums first_sums() const {
    return over_keys([&](Sums& sums, int d) __attribute__((always_inline)) {
      for (int c = 0; c < C; ++c) accumulate(sums, 0, d, c, load(s + d * stride + 16 * c));
    });
  }
  Sums update_and_sum(int t, const Vec (&u)[C]) const {
    return over_keys([&](Sums& sums, int d) __attribute__((always_inline)) {
      for (int c = 0; c < C; ++c) {
        const Vec value = updated(t, d, c, u);
        store(value, s + d * stride + 16 * c);
        accumulate(sums, t + 1, d, c, value);
      }
    });
  }
  void update(int t, const Vec (&u)[C]) const {
    for (int d = 0; d < keys; ++d) {
      for (int c = 0; c < C; ++c) store(updated(t, d, c, u), s + d * stride + 16 * c);
    }
  }

  // Columns start at value `column`; out: the head's outputs of the run's first row.
  void pass(int n, int64_t column, float* out, int64_t out_stride) const {
    Sums sums = first_sums();
    for (int t = 0; t < n; ++t) {
      Vec u[C];
      for (int c = 0; c < C; ++c) {
        u[c] = Vec::set(run.beta[t]) * (load(run.v[t] + column + 16 * c) - sums.k[c]);
        store(Vec::fma(Vec::set(run.qk[t]), u[c], sums.q[c]), out + t * out_stride + column + 16 * c);
      }
      if (t + 1 < n)
        sums = update_and_sum(t, u);
      else
        update(t, u);
    }
  }
};

inline void advance(const KdaRun& run, const KdaShape& shape, float* s, int n, float* out, int64_t out_stride) {
  const int64_t values = shape.value_dim;
  int64_t column = 0;
  const auto pass = [&](auto columns, int64_t width) {
    columns.pass(n, column, out, out_stride);
    column += width;
  };
  while (column + 16 * kColumns <= values) {
    pass(KdaColumns<kColumns, false>{run, s + column, values, shape.key_dim, 16}, 16 * kColumns);
  }
  while (column + 16 <= values) pass(KdaColumns<1, false>{run, s + column, values, shape.key_dim, 16}, 16);
  if (column < values) {
    pass(KdaColumns<1, true>{run, s + column, values, shape.key_dim, static_cast<int>(values - column)}, 16);
  }
}

void kda_head(const KdaArgs& args, const SequenceSlice& slice, int head, float rate, float* s) {
  const KdaShape& shape = args.shape;
  float* window = s + int64_t{shape.key_dim} * shape.value_dim;
  KdaRun run;
  for (int done = 0; done < slice.row_count; done += kRun) {
    const int n = slice.row_count - done < kRun ? slice.row_count - done : kRun;
    const int64_t row = slice.row_begin + done;
    prepare_run(args, head, rate, window, row, n, run);
    advance(run, shape, s, n, args.out + row * args.out_stride + int64_t{head} * shape.value_dim, args.out_stride);
  }
}

constexpr KdaOps kHeads = {.head = kda_head};

}  // namespace
}  // namespace baton::kernels
