// What this machine can do at most, for reports and for bf16_method.cc: instructions on registers alone, and reads of
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::kernels {

// Runs `steps` rounds of independent instructions; returns the operations done (a multiply and an add are two). Needs
// AVX-512 with VNNI and BF16.
double burn_vnni(int64_t steps);
double burn_bf16(int64_t steps);
double burn_fma(int64_t steps);

// Reads `count` cache lines; the sum keeps the compiler honest.
uint64_t read_lines(const std::byte* bytes, int64_t count);

}  // namespace baton::kernels
