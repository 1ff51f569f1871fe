// Array forms over the lane type Vec of the including file.
#pragma once

#include "kernels/math_impl.h"
#include "kernels/math_ops.h"

#ifndef BATON_VEC16
#include "kernels/vec16_portable.h"  // alone: the portable lanes
#endif

namespace baton::kernels {
namespace {

inline void exp_array(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) math_impl::exp(Vec::load(x + i)).store(y + i);
  const int rest = static_cast<int>(n - i);
  if (rest > 0) math_impl::exp(Vec::load_n(x + i, rest)).store_n(y + i, rest);
}

inline void log_array(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) math_impl::log(Vec::load(x + i)).store(y + i);
  const int rest = static_cast<int>(n - i);
  if (rest > 0) math_impl::log(Vec::load_n(x + i, rest)).store_n(y + i, rest);
}

}  // namespace
}  // namespace baton::kernels
