// Rows of any length in steps of 16 lanes of the including file's Vec.
#pragma once

#include <cstdint>

#ifndef BATON_VEC16
#include "kernels/vec16_portable.h"  // alone: the portable lanes
#endif

namespace baton::kernels {
namespace {

// body(i, n): n = 16 lanes from element i, and the rest with n < 16.
template <typename Body>
inline __attribute__((always_inline)) void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) body(i, 16);
  if (i < count) body(i, static_cast<int>(count - i));
}
inline __attribute__((always_inline)) Vec load_lanes(const float* p, int n) {
  return n == 16 ? Vec::load(p) : Vec::load_n(p, n);
}
inline __attribute__((always_inline)) void store_lanes(Vec v, float* p, int n) {
  if (n == 16)
    v.store(p);
  else
    v.store_n(p, n);
}

}  // namespace
}  // namespace baton::kernels
