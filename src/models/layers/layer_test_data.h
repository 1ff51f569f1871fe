// What the tests of layers share: random matrices of any format, the same on every instruction set, and plain products
// in double of what they stand for.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/matmul_test_data.h"
#include "models/layers/linear.h"

namespace baton::models::test {

using kernels::test::isas;
using kernels::test::same_bits;
using tensor::DType;
using tensor::Isa;
using Doubles = std::vector<double>;

inline std::vector<float> random_floats(int64_t count, unsigned seed, float deviation = 1, float mean = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(generator);
  return values;
}

// fp32 matrices have elements of about in^-0.5, so that outputs are of the size of inputs.
inline kernels::PackedMatrix random_matrix(int64_t out, int64_t in, DType dtype, Isa isa, unsigned seed) {
  const kernels::MatmulSpec spec{.out_features = out, .in_features = in, .dtype = dtype, .isa = isa};
  if (dtype == DType::kF32) {
    const auto values = random_floats(out * in, seed, 1 / std::sqrt(static_cast<float>(in)));
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return kernels::test::pack(spec, std::vector<std::byte>(bytes, bytes + values.size() * sizeof(float)));
  }
  kernels::test::Random random(seed);
  return kernels::test::pack(spec, kernels::test::random_weights(random, dtype, out * in));
}

inline Linear random_linear(int64_t out, int64_t in, DType dtype, Isa isa, unsigned seed) {
  return {.weight = random_matrix(out, in, dtype, isa, seed), .bias = {}};
}

// W x for each row of x [rows, in].
inline Doubles product(const kernels::PackedMatrix& w, const Doubles& x) {
  const auto in = static_cast<size_t>(w.spec().in_features), out = static_cast<size_t>(w.spec().out_features);
  const size_t rows = x.size() / in;
  Doubles y(rows * out, 0);
  std::vector<float> weights(in);
  for (size_t n = 0; n < out; ++n) {
    kernels::unpack_row(w, static_cast<int64_t>(n), weights.data());
    for (size_t r = 0; r < rows; ++r) {
      for (size_t k = 0; k < in; ++k) y[r * out + n] += x[r * in + k] * weights[k];
    }
  }
  return y;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline double relative_error(const std::vector<float>& got, const Doubles& want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace baton::models::test
