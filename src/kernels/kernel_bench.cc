#include "kernels/kernel_bench.h"

#include "kernels/bench_support.h"
#include "kernels/matmul_peak.h"

namespace baton::kernels {
namespace {

double peak_gops(ComputePool& pool, double (*burn)(int64_t)) {
  constexpr int64_t kSteps = 4'000'000;
  std::vector<double> operations(static_cast<size_t>(pool.threads()) * 8);  // a cache line each
  const double seconds = seconds_of(pool.threads(), 3, [&] {
    pool.run([&](int thread) { operations[static_cast<size_t>(thread) * 8] = burn(kSteps); });
  });
  return operations[0] * pool.threads() / seconds / 1e9;
}

}  // namespace

KernelLimits measure_kernel_limits(int threads) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  KernelLimits limits;
  ComputePool pool({.threads = threads});
  if (auto buffer = tensor::Buffer::allocate(kBytes)) {
    std::memset(buffer->data(), 1, kBytes);
    std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
    const double seconds = seconds_of(threads, 5, [&] {
      pool.run([&](int thread) {
        const int64_t begin = kBytes / 64 * thread / threads, end = kBytes / 64 * (thread + 1) / threads;
        sums[static_cast<size_t>(thread) * 8] += read_lines(buffer->data() + begin * 64, end - begin);
      });
    });
    limits.read_gbs = static_cast<double>(kBytes) / seconds / 1e9;
  }
  if (tensor::detect_isa() != tensor::Isa::kAvx512) return limits;
  limits.int8_gops = peak_gops(pool, burn_vnni);
  limits.bf16_gops = peak_gops(pool, burn_bf16);
  limits.f32_gops = peak_gops(pool, burn_fma);
  return limits;
}

void run_kernel_bench(const KernelBenchOptions& options, const KernelLimits& limits,
                      const std::function<void(const KernelLine&)>& take) {
  Bench bench{.options = options, .limits = limits, .take = take, .pool = ComputePool({.threads = options.threads})};
  const std::pair<const char*, void (*)(Bench&)> sections[] = {
      {"matmul", bench_matmul}, {"attention", bench_attention}, {"latent", bench_latent}, {"context", bench_context}};
  for (const auto& [name, run] : sections) {
    bench.section = name;
    run(bench);
  }
  bench.section = "error";
  if (!options.filter.empty() && !options.filter.starts_with("error")) return;
  bench_attention_errors(bench);
  bench_latent_errors(bench);
}

}  // namespace baton::kernels
