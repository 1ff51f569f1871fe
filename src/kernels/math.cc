#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math_impl.h"
#include "kernels/math_ops.h"

namespace baton::kernels {
namespace {

const MathOps& math_ops(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return kMathAvx512;
    case tensor::Isa::kAvx2:
      return kMathAvx2;
    case tensor::Isa::kPortable:
      break;
  }
  return kMathPortable;
}

}  // namespace

// The scalar forms are written out on their own, as the reference that the lane forms are compared with.
float exp_exact(float x) {
  using namespace math_impl;
  if (std::isnan(x)) return x + x;
  if (x < kExpMin) return 0;
  if (x > kExpMax) return HUGE_VALF;
  const float rounded = std::fma(x, kLog2E, kRoundMagic);
  const float n = rounded - kRoundMagic;
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  float q = kExpQ[4];
  for (int i = 3; i >= 0; --i) q = std::fma(q, r, kExpQ[i]);
  const float y = std::fma(q, r * r, r) + 1.0f;
  const int exponent = static_cast<int>(n);
  const float half = std::bit_cast<float>(static_cast<uint32_t>((exponent >> 1) + 127) << 23);
  const float other = std::bit_cast<float>(static_cast<uint32_t>(exponent - (exponent >> 1) + 127) << 23);
  return y * half * other;
}

float log_exact(float x) {
  using namespace math_impl;
  if (x == 0) return -HUGE_VALF;
  if (x < 0) return std::bit_cast<float>(0x7fc00000u);
  if (!(x < HUGE_VALF)) return x + x;
  const bool small = x < 0x1p-126f;
  const uint32_t bits = std::bit_cast<uint32_t>(small ? x * 0x1p+25f : x);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float e = static_cast<float>(small ? exponent - 25 : exponent);
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  const float f2 = f * f;
  float p = kLogP[8];
  for (int i = 7; i >= 0; --i) p = std::fma(p, f, kLogP[i]);
  const float low = std::fma(f2, -0.5f, std::fma(f2 * f, p, e * kLn2Low));
  return std::fma(e, kLn2High, f + low);
}

void exp_exact(const float* x, float* y, int64_t n, tensor::Isa isa) { math_ops(isa).exp(x, y, n); }
void log_exact(const float* x, float* y, int64_t n, tensor::Isa isa) { math_ops(isa).log(x, y, n); }
void sigmoid_exact(const float* x, float* y, int64_t n, tensor::Isa isa) { math_ops(isa).sigmoid(x, y, n); }
void tanh_exact(const float* x, float* y, int64_t n, tensor::Isa isa) { math_ops(isa).tanh(x, y, n); }
void softplus_exact(const float* x, float* y, int64_t n, tensor::Isa isa) { math_ops(isa).softplus(x, y, n); }

}  // namespace baton::kernels
