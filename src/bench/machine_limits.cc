#include "bench/machine_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "kernels/matmul_peak.h"
#include "tensor/buffer.h"
#include "tensor/cpu.h"
#include "transport/copy_limits.h"

namespace baton::bench {
namespace {

constexpr size_t kBytes = size_t{256} << 20;  // far beyond any cache of a core

// The best of the runs that fit: other work on the machine only slows.
double best_seconds(double budget_s, const std::function<void()>& body) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  double best = 1e30;
  for (int round = 0; round < 2 || (round < 20 && seconds_between(begin, clock.now()) < budget_s); ++round) {
    const TimePoint start = clock.now();
    body();
    best = std::min(best, seconds_between(start, clock.now()));
  }
  return best;
}

double read_gbs(std::span<const std::byte> bytes, int threads, double budget_s) {
  ComputePool pool({.threads = threads});
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
  const double seconds = best_seconds(budget_s, [&] {
    pool.run([&](int thread) {
      const auto lines = static_cast<int64_t>(bytes.size() / 64);
      const int64_t begin = lines * thread / threads, end = lines * (thread + 1) / threads;
      sums[static_cast<size_t>(thread) * 8] += kernels::read_lines(bytes.data() + begin * 64, end - begin);
    });
  });
  return static_cast<double>(bytes.size()) / seconds / 1e9;
}

double peak_gops(int threads, double (*burn)(int64_t), double budget_s) {
  constexpr int64_t kSteps = 2'000'000;
  ComputePool pool({.threads = threads});
  std::vector<double> operations(static_cast<size_t>(threads) * 8);
  const double seconds = best_seconds(
      budget_s, [&] { pool.run([&](int thread) { operations[static_cast<size_t>(thread) * 8] = burn(kSteps); }); });
  return operations[0] * threads / seconds / 1e9;
}

}  // namespace

MachineLimits measure_limits(double budget_s) {
  MachineLimits limits{.cores = tensor::usable_cores(), .isa = std::string(tensor::isa_name(tensor::detect_isa()))};
  const double part = budget_s / 8;
  if (tensor::detect_isa() == tensor::Isa::kAvx512) {
    limits.bf16_gops = peak_gops(limits.cores, kernels::burn_bf16, part);
    limits.int8_gops = peak_gops(limits.cores, kernels::burn_vnni, part);
    limits.f32_gops = peak_gops(limits.cores, kernels::burn_fma, part);
  }
  auto from = tensor::Buffer::allocate(kBytes), to = tensor::Buffer::allocate(kBytes);
  if (!from || !to) return limits;
  std::memset(from->data(), 1, kBytes);
  std::memset(to->data(), 2, kBytes);
  const std::span<const std::byte> bytes(from->data(), kBytes);
  limits.read_one_gbs = read_gbs(bytes, 1, part);
  limits.read_all_gbs = limits.cores > 1 ? read_gbs(bytes, limits.cores, part) : limits.read_one_gbs;
  const double copied = static_cast<double>(kBytes) / 1e9;
  limits.memcpy_gbs = copied / best_seconds(part, [&] { std::memcpy(to->data(), from->data(), kBytes); });
  limits.nt_copy_gbs = copied / best_seconds(part, [&] { transport::stream_copy(from->data(), to->data(), kBytes); });
  if (const auto seconds = transport::loopback_tcp_seconds(bytes)) limits.tcp_gbs = copied / *seconds;
  return limits;
}

std::string limits_text(const MachineLimits& limits) {
  auto text = fmt::format(
      "Machine: {} cores, {}; memory read {:.1f} GB/s by one core, {:.1f} by all; memcpy {:.1f}, non-temporal copy "
      "{:.1f}, loopback TCP {:.1f} GB/s",
      limits.cores, limits.isa, limits.read_one_gbs, limits.read_all_gbs, limits.memcpy_gbs, limits.nt_copy_gbs,
      limits.tcp_gbs);
  if (limits.bf16_gops > 0) {
    text += fmt::format("; peak BF16 {:.0f}, int8 {:.0f}, f32 {:.0f} GOP/s", limits.bf16_gops, limits.int8_gops,
                        limits.f32_gops);
  }
  return text + "\n";
}

nlohmann::ordered_json limits_json(const MachineLimits& limits) {
  return {{"cores", limits.cores},
          {"isa", limits.isa},
          {"read_one_core_gbs", limits.read_one_gbs},
          {"read_all_cores_gbs", limits.read_all_gbs},
          {"memcpy_gbs", limits.memcpy_gbs},
          {"nt_copy_gbs", limits.nt_copy_gbs},
          {"loopback_tcp_gbs", limits.tcp_gbs},
          {"bf16_gops", limits.bf16_gops},
          {"int8_gops", limits.int8_gops},
          {"f32_gops", limits.f32_gops}};
}

}  // namespace baton::bench
