// exp and log: accuracy against libm in double, and the same bits on every instruction set.
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace baton::kernels {
namespace {

using tensor::Isa;

std::vector<Isa> isas() {
  std::vector<Isa> list = {Isa::kPortable};
  if (tensor::detect_isa() >= Isa::kAvx2) list.push_back(Isa::kAvx2);
  if (tensor::detect_isa() >= Isa::kAvx512) list.push_back(Isa::kAvx512);
  return list;
}

// Distance of `got` from the real value, in units of the last place of the float nearest to it.
double ulp_error(float got, double want) {
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// BATON_TEST_ALL_FLOATS=1 walks every float (minutes).
uint64_t bit_stride() { return std::getenv("BATON_TEST_ALL_FLOATS") != nullptr ? 1 : 4099; }

template <typename Check>
void for_many_floats(Check check) {
  const uint64_t stride = bit_stride();
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32);) {
    x.clear();
    for (int i = 0; i < 4096 && bits < (uint64_t{1} << 32); ++i, bits += stride) {
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    check(x);
  }
}

template <typename Scalar, typename Array>
void expect_same_bits(Scalar scalar, Array array) {
  const std::vector<Isa> list = isas();
  int64_t differing = 0;
  for_many_floats([&](const std::vector<float>& x) {
    std::vector<float> y(x.size());
    for (Isa isa : list) {
      array(x.data(), y.data(), static_cast<int64_t>(x.size()), isa);
      for (size_t i = 0; i < x.size(); ++i) {
        differing += std::bit_cast<uint32_t>(y[i]) != std::bit_cast<uint32_t>(scalar(x[i]));
      }
    }
  });
  EXPECT_EQ(differing, 0);
}

TEST(ExpExact, WithinTwoUlpOfLibm) {
  double worst = 0;
  for_many_floats([&](const std::vector<float>& x) {
    for (float v : x) {
      if (!(v >= -87.33f && v <= 88.72f)) continue;
      worst = std::max(worst, ulp_error(exp_exact(v), std::exp(static_cast<double>(v))));
    }
  });
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LT(worst, 2.0);
  std::printf("exp: worst %.3f ulp\n", worst);
}

TEST(LogExact, WithinTwoUlpOfLibm) {
  double worst = 0;
  const auto measure = [&](float v) {
    if (v > 0 && v < HUGE_VALF && v != 1.0f) {
      worst = std::max(worst, ulp_error(log_exact(v), std::log(static_cast<double>(v))));
    }
  };
  for_many_floats([&](const std::vector<float>& x) {
    for (float v : x) measure(v);
  });
  // Around 1, where the result is small, every float.
  for (float v = 0.999f; v < 1.001f; v = std::nextafter(v, 2.0f)) measure(v);
  EXPECT_LT(worst, 2.0);
  std::printf("log: worst %.3f ulp\n", worst);
}

TEST(ExpExact, EdgesAreExact) {
  EXPECT_EQ(exp_exact(0.0f), 1.0f);
  EXPECT_EQ(exp_exact(-0.0f), 1.0f);
  EXPECT_EQ(exp_exact(-87.34f), 0.0f);
  EXPECT_GT(exp_exact(-87.33f), 0.0f);
  EXPECT_EQ(exp_exact(-HUGE_VALF), 0.0f);
  EXPECT_EQ(exp_exact(88.73f), HUGE_VALF);
  EXPECT_LT(exp_exact(88.72f), HUGE_VALF);
  EXPECT_EQ(exp_exact(HUGE_VALF), HUGE_VALF);
  EXPECT_TRUE(std::isnan(exp_exact(std::numeric_limits<float>::quiet_NaN())));
}

TEST(LogExact, EdgesAreExact) {
  EXPECT_EQ(log_exact(1.0f), 0.0f);
  EXPECT_EQ(log_exact(0.0f), -HUGE_VALF);
  EXPECT_EQ(log_exact(-0.0f), -HUGE_VALF);
  EXPECT_EQ(log_exact(HUGE_VALF), HUGE_VALF);
  EXPECT_TRUE(std::isnan(log_exact(-1.0f)));
  EXPECT_TRUE(std::isnan(log_exact(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_NEAR(log_exact(0x1p-149f), -149 * std::log(2.0), 1e-5);
}

TEST(ExpExact, SameBitsOnEveryIsa) {
  expect_same_bits([](float v) { return exp_exact(v); },
                   [](const float* x, float* y, int64_t n, Isa isa) { exp_exact(x, y, n, isa); });
}

TEST(LogExact, SameBitsOnEveryIsa) {
  expect_same_bits([](float v) { return log_exact(v); },
                   [](const float* x, float* y, int64_t n, Isa isa) { log_exact(x, y, n, isa); });
}

// The worst error in ulp of an array form against libm in double, over floats of both signs up to `limit`.
template <typename Array, typename Want>
double worst_ulp(float limit, Array array, Want want) {
  double worst = 0;
  for_many_floats([&](const std::vector<float>& x) {
    std::vector<float> y(x.size());
    array(x.data(), y.data(), static_cast<int64_t>(x.size()), tensor::detect_isa());
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::abs(x[i]) <= limit) worst = std::max(worst, ulp_error(y[i], want(static_cast<double>(x[i]))));
    }
  });
  return worst;
}

using ArrayForm = void (*)(const float*, float*, int64_t, Isa);

// Against the portable lanes, whose formulas are checked above.
void expect_same_bits_as_portable(ArrayForm form) {
  int64_t differing = 0;
  for_many_floats([&](const std::vector<float>& x) {
    const auto n = static_cast<int64_t>(x.size());
    std::vector<float> want(x.size()), y(x.size());
    form(x.data(), want.data(), n, Isa::kPortable);
    for (Isa isa : isas()) {
      form(x.data(), y.data(), n, isa);
      for (size_t i = 0; i < x.size(); ++i) {
        differing += std::bit_cast<uint32_t>(y[i]) != std::bit_cast<uint32_t>(want[i]);
      }
    }
  });
  EXPECT_EQ(differing, 0);
}

float value_of(ArrayForm form, float x) {
  float y;
  form(&x, &y, 1, Isa::kPortable);
  return y;
}

TEST(SigmoidExact, WithinThreeUlpAndSameBits) {
  const double worst =
      worst_ulp(87.0f, [](auto... a) { sigmoid_exact(a...); }, [](double x) { return 1 / (1 + std::exp(-x)); });
  std::printf("sigmoid: worst %.3f ulp\n", worst);
  EXPECT_LT(worst, 3.0);
  expect_same_bits_as_portable(sigmoid_exact);
  EXPECT_EQ(value_of(sigmoid_exact, HUGE_VALF), 1.0f);
  EXPECT_EQ(value_of(sigmoid_exact, -HUGE_VALF), 0.0f);
  EXPECT_EQ(value_of(sigmoid_exact, 0.0f), 0.5f);
  EXPECT_TRUE(std::isnan(value_of(sigmoid_exact, std::numeric_limits<float>::quiet_NaN())));
}

TEST(TanhExact, WithinFourUlpAndSameBits) {
  const double worst = worst_ulp(1000.0f, [](auto... a) { tanh_exact(a...); }, [](double x) { return std::tanh(x); });
  std::printf("tanh: worst %.3f ulp\n", worst);
  EXPECT_LT(worst, 4.0);
  expect_same_bits_as_portable(tanh_exact);
  EXPECT_EQ(value_of(tanh_exact, HUGE_VALF), 1.0f);
  EXPECT_EQ(value_of(tanh_exact, -HUGE_VALF), -1.0f);
  EXPECT_EQ(value_of(tanh_exact, 0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(value_of(tanh_exact, std::numeric_limits<float>::quiet_NaN())));
}

TEST(SoftplusExact, WithinThreeUlpAndSameBits) {
  const double worst = worst_ulp(
      87.0f, [](auto... a) { softplus_exact(a...); },
      [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); });
  std::printf("softplus: worst %.3f ulp\n", worst);
  EXPECT_LT(worst, 3.0);
  expect_same_bits_as_portable(softplus_exact);
  EXPECT_EQ(value_of(softplus_exact, HUGE_VALF), HUGE_VALF);
  EXPECT_EQ(value_of(softplus_exact, -HUGE_VALF), 0.0f);
  EXPECT_TRUE(std::isnan(value_of(softplus_exact, std::numeric_limits<float>::quiet_NaN())));
}

TEST(MathArrays, EveryLengthWritesItsElementsOnly) {
  for (Isa isa : isas()) {
    for (int n = 0; n <= 50; ++n) {
      std::vector<float> x(n + 1, 0.5f), y(n + 1, -7.0f);
      exp_exact(x.data(), y.data(), n, isa);
      for (int i = 0; i < n; ++i) EXPECT_EQ(y[i], exp_exact(0.5f));
      EXPECT_EQ(y[n], -7.0f);
    }
  }
}

}  // namespace
}  // namespace baton::kernels
