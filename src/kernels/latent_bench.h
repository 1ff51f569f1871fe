// What the parts of latent_attention_bench share: the machine's limits, timing and lines.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/kv_view.h"
#include "kernels/matmul_peak.h"
#include "tensor/buffer.h"
#include "tensor/cpu.h"

namespace baton::kernels {

struct Options {
  int threads = 1;
  tensor::Isa isa = tensor::detect_isa();
  std::string filter;
};

inline double now(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Best of `runs`.
inline double seconds_of(int threads, int runs, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const double begin = now(threads);
    body();
    best = std::min(best, now(threads) - begin);
  }
  return best;
}

struct Bench {
  Options options;
  ComputePool pool;
  double read_bytes = 0, fma_ops = 0;  // per second

  explicit Bench(Options o) : options(std::move(o)), pool({.threads = options.threads}) {
    constexpr int64_t kBytes = 256 << 20;
    auto buffer = tensor::Buffer::allocate(kBytes);
    if (buffer) {
      std::memset(buffer->data(), 1, kBytes);
      volatile uint64_t sink = 0;
      read_bytes = kBytes / seconds_of(options.threads, 3, [&] {
                     pool.parallel_for(kBytes / 64, 64, [&](int64_t begin, int64_t end) {
                       sink = sink + read_lines(buffer->data() + begin * 64, end - begin);
                     });
                   });
    }
    if (tensor::detect_isa() != tensor::Isa::kAvx512) return;
    volatile double ops = 0;
    const double seconds = seconds_of(options.threads, 3, [&] { pool.run([&](int) { ops = burn_fma(4'000'000); }); });
    fma_ops = ops * options.threads / seconds;
  }
  bool wants(std::string_view name) const { return options.filter.empty() || name.starts_with(options.filter); }
  void line(const std::string& name, double seconds, double bytes, double ops) const {
    fmt::print("{:42} {:10.1f} us   {:7.3f} GB/s {:5.1f} %   {:7.1f} GFLOP/s {:5.1f} %\n", name, seconds * 1e6,
               bytes / seconds / 1e9, 100 * bytes / seconds / read_bytes, ops / seconds / 1e9,
               fma_ops > 0 ? 100 * ops / seconds / fma_ops : 0);
  }
};

inline std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> pattern(65521), values(static_cast<size_t>(count));
  for (float& v : pattern) v = normal(generator);
  for (size_t i = 0; i < values.size(); ++i) values[i] = pattern[i % pattern.size()];
  return values;
}

inline PagedEntry latent_entry(tensor::DType dtype) {
  return {.kind = PagedKind::kLatent, .dim = 512, .rope_dim = 64, .dtype = dtype};
}
inline constexpr double kOpsPerPair = 2.0 * (576 + 512);  // a head and a position

// A context that is spread over ranks.
void bench_context(Bench& bench);

}  // namespace baton::kernels
