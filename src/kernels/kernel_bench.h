// Speed of the kernels beside what this machine can do, measured in the same run: the report of `baton bench kernels`.
//
// matmul: every weight format with one row (decode: bytes of weights a second), 8 and 512 rows (prefill: operations a
// second); packing by one thread; experts and heads as decode and absorbed MLA call them. attention, latent (with
// sparse and indexer), context (spread over ranks): bytes of cache and operations. error: of each cache dtype against
// fp32.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tensor/cpu.h"

namespace baton::kernels {

struct KernelBenchOptions {
  int threads = 1;
  tensor::Isa isa = tensor::detect_isa();
  std::string filter;                       // lines whose name has it, or a section's name; empty: all
  int64_t outputs = 4096, features = 4096;  // of a weight matrix; multiples of 256
  int64_t working_set_mb = 192;             // of weights, for few rows; small: they stay in a cache
};

struct KernelLimits {
  double read_gbs = 0;                                // memory, by all threads
  double int8_gops = 0, bf16_gops = 0, f32_gops = 0;  // in registers; 0 without AVX-512
};

struct KernelLine {
  std::string section, name;
  double seconds = 0;                 // of one run, the best of several
  double gbs = 0, gbs_percent = 0;    // of what must be read, and of the memory's limit; 0: none told
  double gops = 0, gops_percent = 0;  // of what must be computed, and of the limit for its number format
  double relative_error = 0;          // L2, of section error
  std::string failure;                // why there is no figure
};

// With one thread, times are the processor time of that thread, so that a busy machine disturbs them less.
KernelLimits measure_kernel_limits(int threads);
// Calls `take` with every line as it is measured, on the calling thread.
void run_kernel_bench(const KernelBenchOptions& options, const KernelLimits& limits,
                      const std::function<void(const KernelLine&)>& take);

}  // namespace baton::kernels
