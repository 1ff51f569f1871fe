#include <immintrin.h>

#include "kernels/matmul_peak.h"

namespace baton::kernels {
namespace {

constexpr int kChains = 12;  // more than latency times throughput

// Keeps a register from being computed once and for all.
[[gnu::always_inline]] inline void keep(__m512i& value) { asm volatile("" : "+v"(value)); }
[[gnu::always_inline]] inline void keep(__m512& value) { asm volatile("" : "+v"(value)); }

}  // namespace

double burn_vnni(int64_t steps) {
  __m512i acc[kChains] = {};
  __m512i a = _mm512_set1_epi8(1), b = a;
  for (int64_t i = 0; i < steps; ++i) {
#pragma clang loop unroll(full)
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_dpbusd_epi32(acc[c], a, b);
      keep(acc[c]);
    }
  }
  return static_cast<double>(steps) * kChains * 128;
}

double burn_bf16(int64_t steps) {
  __m512 acc[kChains] = {};
  const auto a = __builtin_bit_cast(__m512bh, _mm512_set1_epi16(0x3f80));
  for (int64_t i = 0; i < steps; ++i) {
#pragma clang loop unroll(full)
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_dpbf16_ps(acc[c], a, a);
      keep(acc[c]);
    }
  }
  return static_cast<double>(steps) * kChains * 64;
}

double burn_fma(int64_t steps) {
  __m512 acc[kChains] = {};
  const __m512 a = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma clang loop unroll(full)
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_fmadd_ps(acc[c], a, a);
      keep(acc[c]);
    }
  }
  return static_cast<double>(steps) * kChains * 32;
}

}  // namespace baton::kernels
