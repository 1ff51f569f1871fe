// Kimi Delta Attention in double, from the formulas of kda.h: one token after the other, and chunk by chunk in the form
// of the Kimi Linear report. For tests.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/kda.h"

namespace baton::kernels::test {

using Doubles = std::vector<double>;

// One head's tokens after convolution, norms and gates.
struct KdaTokens {
  int count = 0, keys = 0, values = 0;
  Doubles q, k, v, g;  // [count, keys], [count, values]
  Doubles beta;        // [count]
};

// Inputs of one head: rows of `count` tokens.
struct KdaHeadInput {
  Doubles q, k, v, r, beta;        // before the convolution
  Doubles q_conv, k_conv, v_conv;  // [dim, width], as checkpoints have them
  Doubles dt_bias;
  double a_log = 0;
};

inline Doubles convolve_silu(const Doubles& x, const Doubles& w, int count, int dim, int width) {
  Doubles y(x.size());
  for (int t = 0; t < count; ++t) {
    for (int c = 0; c < dim; ++c) {
      double sum = 0;
      for (int j = 0; j < width; ++j) {
        const int at = t - (width - 1) + j;
        if (at >= 0) sum += w[c * width + j] * x[at * dim + c];
      }
      y[t * dim + c] = sum / (1 + std::exp(-sum));
    }
  }
  return y;
}

inline void normalize_rows(Doubles& x, int dim, double scale) {
  for (size_t row = 0; row < x.size(); row += dim) {
    double squares = 0;
    for (int i = 0; i < dim; ++i) squares += x[row + i] * x[row + i];
    for (int i = 0; i < dim; ++i) x[row + i] *= scale / std::sqrt(squares + 1e-6);
  }
}

inline KdaTokens prepare(const KdaHeadInput& in, const KdaShape& shape, KdaDecay decay, double lower_bound) {
  KdaTokens tokens;
  tokens.count = static_cast<int>(in.beta.size());
  tokens.keys = shape.key_dim;
  tokens.values = shape.value_dim;
  tokens.q = convolve_silu(in.q, in.q_conv, tokens.count, shape.key_dim, shape.conv_width);
  tokens.k = convolve_silu(in.k, in.k_conv, tokens.count, shape.key_dim, shape.conv_width);
  tokens.v = convolve_silu(in.v, in.v_conv, tokens.count, shape.value_dim, shape.conv_width);
  normalize_rows(tokens.q, shape.key_dim, 1 / std::sqrt(static_cast<double>(shape.key_dim)));
  normalize_rows(tokens.k, shape.key_dim, 1);
  const double rate = std::exp(in.a_log);
  for (size_t i = 0; i < in.r.size(); ++i) {
    const double x = in.r[i] + in.dt_bias[i % shape.key_dim];
    tokens.g.push_back(decay == KdaDecay::kSoftplus ? -rate * std::log1p(std::exp(x))
                                                    : lower_bound / (1 + std::exp(-rate * x)));
  }
  for (double b : in.beta) tokens.beta.push_back(1 / (1 + std::exp(-b)));
  return tokens;
}

// o [count, values]; s [keys, values] starts as zeros and ends as the state.
inline Doubles recurrent(const KdaTokens& x, Doubles& s) {
  const int keys = x.keys, values = x.values;
  s.assign(static_cast<size_t>(keys) * values, 0);
  Doubles out;
  for (int t = 0; t < x.count; ++t) {
    for (int d = 0; d < keys; ++d) {
      for (int e = 0; e < values; ++e) s[d * values + e] *= std::exp(x.g[t * keys + d]);
    }
    for (int e = 0; e < values; ++e) {
      double seen = 0;
      for (int d = 0; d < keys; ++d) seen += x.k[t * keys + d] * s[d * values + e];
      const double u = x.beta[t] * (x.v[t * values + e] - seen);
      double o = 0;
      for (int d = 0; d < keys; ++d) {
        s[d * values + e] += x.k[t * keys + d] * u;
        o += x.q[t * keys + d] * s[d * values + e];
      }
      out.push_back(o);
    }
  }
  return out;
}

// The same by chunks: within a chunk the u of all tokens solve a unit lower triangular system.
inline Doubles chunked(const KdaTokens& x, int chunk, Doubles& s) {
  const int keys = x.keys, values = x.values;
  s.assign(static_cast<size_t>(keys) * values, 0);
  Doubles out(static_cast<size_t>(x.count) * values, 0);
  for (int begin = 0; begin < x.count; begin += chunk) {
    const int n = std::min(chunk, x.count - begin);
    const auto g_to = [&](int t, int d) {  // inclusive sum of g inside the chunk
      double sum = 0;
      for (int i = 0; i <= t; ++i) sum += x.g[(begin + i) * keys + d];
      return sum;
    };
    // sum_d a_t[d] k_i[d] exp(G_t[d] - G_i[d])
    const auto related = [&](const Doubles& a, int t, int i) {
      double sum = 0;
      for (int d = 0; d < keys; ++d) {
        sum += a[(begin + t) * keys + d] * x.k[(begin + i) * keys + d] * std::exp(g_to(t, d) - g_to(i, d));
      }
      return sum;
    };
    Doubles u(static_cast<size_t>(n) * values);
    for (int t = 0; t < n; ++t) {
      for (int e = 0; e < values; ++e) {
        double seen = 0;
        for (int d = 0; d < keys; ++d) seen += x.k[(begin + t) * keys + d] * std::exp(g_to(t, d)) * s[d * values + e];
        u[t * values + e] = x.beta[begin + t] * (x.v[(begin + t) * values + e] - seen);
      }
      for (int i = 0; i < t; ++i) {
        const double l = x.beta[begin + t] * related(x.k, t, i);
        for (int e = 0; e < values; ++e) u[t * values + e] -= l * u[i * values + e];
      }
      for (int e = 0; e < values; ++e) {
        for (int d = 0; d < keys; ++d) {
          out[(begin + t) * values + e] += x.q[(begin + t) * keys + d] * std::exp(g_to(t, d)) * s[d * values + e];
        }
      }
      for (int i = 0; i <= t; ++i) {
        const double p = related(x.q, t, i);
        for (int e = 0; e < values; ++e) out[(begin + t) * values + e] += p * u[i * values + e];
      }
    }
    for (int d = 0; d < keys; ++d) {
      for (int e = 0; e < values; ++e) {
        double sum = std::exp(g_to(n - 1, d)) * s[d * values + e];
        for (int i = 0; i < n; ++i) {
          sum += x.k[(begin + i) * keys + d] * std::exp(g_to(n - 1, d) - g_to(i, d)) * u[i * values + e];
        }
        s[d * values + e] = sum;
      }
    }
  }
  return out;
}

}  // namespace baton::kernels::test
