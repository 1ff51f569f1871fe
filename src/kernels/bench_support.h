// What the parts of kernel_bench.h share: timing, lines, random values.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/kernel_bench.h"
#include "kernels/kv_view.h"
#include "tensor/buffer.h"

namespace baton::kernels {

inline double now(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Best of `runs`: the machine may be shared.
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
  KernelBenchOptions options;
  KernelLimits limits;
  std::function<void(const KernelLine&)> take;
  ComputePool pool;
  std::string section;

  // Whether some line of this name is wanted, now or with more behind it.
  bool wants(std::string_view name) const {
    return options.filter.empty() || options.filter == section || name.find(options.filter) != std::string_view::npos;
  }
  // bytes and ops of one run; 0: not told. `peak_gops`: of the number format; 0: fp32's.
  void line(const std::string& name, double seconds, double bytes, double ops, double peak_gops = 0) const {
    if (!wants(name)) return;
    KernelLine result{.section = section, .name = name, .seconds = seconds};
    const double peak = peak_gops > 0 ? peak_gops : limits.f32_gops;
    result.gbs = bytes / seconds / 1e9;
    result.gops = ops / seconds / 1e9;
    if (limits.read_gbs > 0) result.gbs_percent = 100 * result.gbs / limits.read_gbs;
    if (peak > 0) result.gops_percent = 100 * result.gops / peak;
    take(result);
  }
  // The relative error of `got`, by the L2 norm.
  void error_line(const std::string& name, const std::vector<float>& got, const std::vector<float>& exact) const {
    double difference = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      difference += std::pow(double{got[i]} - exact[i], 2);
      size += std::pow(double{exact[i]}, 2);
    }
    take({.section = section, .name = name, .relative_error = std::sqrt(difference / size)});
  }
  void check(const std::string& name, bool good, const std::string& words) const {
    if (!good) take({.section = section, .name = name, .failure = words});
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

// The sections.
void bench_matmul(Bench& bench);
void bench_attention(Bench& bench);
void bench_latent(Bench& bench);
void bench_context(Bench& bench);
void bench_attention_errors(Bench& bench);
void bench_latent_errors(Bench& bench);

}  // namespace baton::kernels
