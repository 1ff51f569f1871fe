// exp and log for 16 lanes, written once over a lane type V (vec16_portable.h, vec16_avx2.h, vec16_avx512.h). Every
// operation is one correctly rounded IEEE operation, so that all forms give the same bits.
//
// exp: x = n ln2 + r with |r| <= ln2/2, n rounded by adding 1.5 * 2^23; e^r = 1 + (r + r^2 q(r)), q of degree 4, fitted
// for the least relative error (3.1e-9); then scaled by 2^n. ln2 is split so that n * kLn2High is exact.
// log: x = 2^e m with sqrt(1/2) <= m < sqrt(2), f = m - 1; log x = e ln2 + f - f^2/2 + f^3 p(f), p of degree 8, fitted
// likewise (7.5e-10).
// The others are made of these two; expm1 takes 2^n (r + r^2 q) + (2^n - 1), which loses nothing near 0.
#pragma once

namespace baton::kernels::math_impl {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e4p-1f;
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kRoundMagic = 0x1.8p+23f;
inline constexpr float kExpMin = -0x1.5d589ep+6f;  // ln 2^-126: below it the result would not be normal
inline constexpr float kExpMax = 0x1.62e42ep+6f;   // ln of the largest float
inline constexpr float kExpQ[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23ccp-10f};
inline constexpr float kLogP[9] = {0x1.555548p-2f,  -0x1.000006p-2f, 0x1.99a4b6p-3f,  -0x1.555c4ep-3f, 0x1.233766p-3f,
                                   -0x1.fc220ep-4f, 0x1.e6f08cp-4f,  -0x1.de3bf8p-4f, 0x1.14573ep-4f};

// e^r - 1; `rounded` holds n in its low bits.
template <typename V>
inline __attribute__((always_inline)) V exp_reduced(V x, V& rounded) {
  rounded = V::fma(x, V::set(kLog2E), V::set(kRoundMagic));
  const V n = rounded - V::set(kRoundMagic);
  V r = V::fma(n, V::set(-kLn2High), x);
  r = V::fma(n, V::set(-kLn2Low), r);
  V q = V::set(kExpQ[4]);
  for (int i = 3; i >= 0; --i) q = V::fma(q, r, V::set(kExpQ[i]));
  return V::fma(q, r * r, r);
}

template <typename V>
inline __attribute__((always_inline)) V exp(V x) {
  V rounded;
  const V y = exp_reduced(x, rounded) + V::set(1.0f);
  return V::exp_finish(x, y, rounded, kExpMin, kExpMax);
}

template <typename V>
inline __attribute__((always_inline)) V log(V x) {
  V e, m;
  V::log_split(x, e, m);
  const V f = m - V::set(1.0f);
  const V f2 = f * f;
  V p = V::set(kLogP[8]);
  for (int i = 7; i >= 0; --i) p = V::fma(p, f, V::set(kLogP[i]));
  V low = e * V::set(kLn2Low);
  low = V::fma(f2 * f, p, low);
  low = V::fma(f2, V::set(-0.5f), low);
  const V y = V::fma(e, V::set(kLn2High), f + low);
  return V::log_finish(x, y);
}

template <typename V>
inline __attribute__((always_inline)) V sigmoid(V x) {
  const V one = V::set(1.0f);
  return one / (one + exp(V::set(0.0f) - x));
}

// e / (e + 2) with e = expm1(2x); |x| is cut at 10, where the result has long been 1. max keeps a NaN in its second
// argument.
template <typename V>
inline __attribute__((always_inline)) V tanh(V x) {
  const V zero = V::set(0.0f), limit = V::set(-10.0f);
  const V above = V::max(limit, x);
  const V cut = zero - V::max(limit, zero - above);
  const V twice = cut + cut;
  V rounded;
  const V reduced = exp_reduced(twice, rounded);
  const V power = V::exp_finish(twice, V::set(1.0f), rounded, kExpMin, kExpMax);
  const V e = V::fma(power, reduced, power - V::set(1.0f));
  return e / (e + V::set(2.0f));
}

// log(1 + e^x) = max(x, 0) + log1p(u), u = e^-|x|; log1p(u) = log w + (u - (w - 1)) / w with w = 1 + u.
template <typename V>
inline __attribute__((always_inline)) V softplus(V x) {
  const V zero = V::set(0.0f), one = V::set(1.0f);
  const V u = exp(zero - V::max(x, zero - x));
  const V w = one + u;
  const V lost = (u - (w - one)) / w;
  return V::max(zero, x) + (log(w) + lost);
}

}  // namespace baton::kernels::math_impl
