// Array forms over the lane type Vec of the including file.
#pragma once

#include "kernels/lanes_impl.h"
#include "kernels/math_impl.h"
#include "kernels/math_ops.h"

namespace baton::kernels {
namespace {

template <typename F>
inline __attribute__((always_inline)) void map_array(const float* x, float* y, int64_t n, F f) {
  for_lanes(n, [&](int64_t i, int lanes) { store_lanes(f(load_lanes(x + i, lanes)), y + i, lanes); });
}

inline void exp_array(const float* x, float* y, int64_t n) {
  map_array(x, y, n, [](Vec v) __attribute__((always_inline)) { return math_impl::exp(v); });
}
inline void log_array(const float* x, float* y, int64_t n) {
  map_array(x, y, n, [](Vec v) __attribute__((always_inline)) { return math_impl::log(v); });
}
inline void sigmoid_array(const float* x, float* y, int64_t n) {
  map_array(x, y, n, [](Vec v) __attribute__((always_inline)) { return math_impl::sigmoid(v); });
}
inline void tanh_array(const float* x, float* y, int64_t n) {
  map_array(x, y, n, [](Vec v) __attribute__((always_inline)) { return math_impl::tanh(v); });
}
inline void softplus_array(const float* x, float* y, int64_t n) {
  map_array(x, y, n, [](Vec v) __attribute__((always_inline)) { return math_impl::softplus(v); });
}

constexpr MathOps kArrays = {
    .exp = exp_array, .log = log_array, .sigmoid = sigmoid_array, .tanh = tanh_array, .softplus = softplus_array};

}  // namespace
}  // namespace baton::kernels
