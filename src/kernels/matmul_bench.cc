// Speed of every weight format for one row (decode: bytes of weights a second) and 512 rows (prefill: operations a
// second), each beside what this machine can do, measured in the same run: reading memory, and vpdpbusd or fma in
// registers. Weights of one row's run are larger than the caches.
//
// Packing is one thread's. Then experts and heads, as decode and absorbed MLA call them.
//
//   matmul_bench [--threads N] [--isa NAME] [--filter TEXT|experts|heads] [--outputs N] [--features K]
//   [--working-set-mb N]
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/matmul_peak.h"
#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

using tensor::DType;

struct Options {
  int threads = 1;
  tensor::Isa isa = tensor::detect_isa();
  std::string filter;
  int64_t outputs = 4096, features = 4096;
  size_t working_set_mb = 192;  // of weights, for few rows; small: they stay in a cache
};

// CPU time of the calling thread, which spins while others work: a shared machine distorts it less than wall time.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const std::function<void()>& body) {
  const double begin = thread_seconds();
  body();
  return thread_seconds() - begin;
}

// The best of several runs: the machine may be shared.
double best_seconds(int runs, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) best = std::min(best, seconds_of(body));
  return best;
}

double read_bytes_per_second(ComputePool& pool) {
  constexpr size_t kBytes = size_t{256} << 20;
  auto buffer = tensor::Buffer::allocate(kBytes);
  if (!buffer) return 0;
  std::memset(buffer->data(), 1, kBytes);
  volatile uint64_t sink = 0;
  const double seconds = best_seconds(5, [&] {
    pool.parallel_for(kBytes / 64, 64, [&](int64_t begin, int64_t end) {
      sink = sink + read_lines(buffer->data() + begin * 64, end - begin);
    });
  });
  return kBytes / seconds;
}

double peak_operations_per_second(ComputePool& pool, double (*burn)(int64_t)) {
  constexpr int64_t kSteps = 4'000'000;
  volatile double operations = 0;
  const double seconds = best_seconds(3, [&] { pool.run([&](int) { operations = burn(kSteps); }); });
  return operations * pool.threads() / seconds;
}

// Small random weights with finite scales, written as the file has them.
std::vector<std::byte> random_rows(DType dtype, int64_t elements) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor::dtype_bytes(dtype, elements)));
  std::mt19937 random(1);
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const auto word = static_cast<uint32_t>(random());
    std::memcpy(bytes.data() + i, &word, 4);
  }
  const auto& info = tensor::dtype_info(dtype);
  const uint16_t scale = tensor::float_to_f16(0.01f);
  if (is_channel(dtype)) return bytes;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
    if (is_fp8(dtype) || dtype == DType::kMxfp4 || dtype == DType::kInt4Group32) {
      const float wide = 0.01f;
      const uint16_t half = tensor::float_to_bf16(wide);
      for (int i = scale_bytes(dtype); i < info.block_bytes && is_fp8(dtype); ++i) {
        if ((bytes[at + static_cast<size_t>(i)] & std::byte{0x7f}) == std::byte{0x7f}) {
          bytes[at + static_cast<size_t>(i)] ^= std::byte{0x40};  // no NaN
        }
      }
      if (dtype == DType::kFp8Block) std::memcpy(bytes.data() + at, &wide, 4);
      if (dtype == DType::kInt4Group32) std::memcpy(bytes.data() + at, &half, 2);
      if (scale_bytes(dtype) == 1) bytes[at] = std::byte{120};
      continue;
    }
    if (info.block_elements == 1) {
      const float value = static_cast<float>(random() % 1024) / 4096.0f - 0.125f;
      const uint16_t half = dtype == DType::kF16 ? tensor::float_to_f16(value) : tensor::float_to_bf16(value);
      if (info.block_bytes == 4)
        std::memcpy(bytes.data() + at, &value, 4);
      else
        std::memcpy(bytes.data() + at, &half, 2);
      continue;
    }
    std::memcpy(bytes.data() + at + (dtype == DType::kQ6_K ? 208 : 0), &scale, 2);
    if (dtype != DType::kQ6_K && dtype != DType::kQ8_0 && dtype != DType::kQ4_0 && dtype != DType::kQ5_0) {
      std::memcpy(bytes.data() + at + 2, &scale, 2);
    }
  }
  return bytes;
}

struct Limits {
  double read, int8, bf16, f32;
};

// Matrices of the same random weights in one allocation; none when the format can't hold the shape.
std::vector<PackedMatrix> random_matrices(const MatmulSpec& spec, int64_t count) {
  auto matrices = PackedMatrix::reserve_many(spec, count);
  if (!matrices) {
    fmt::print("{}: {}\n", tensor::dtype_name(spec.dtype), matrices.error().to_string());
    return {};
  }
  const auto rows = random_rows(spec.dtype, spec.out_features * spec.in_features);
  for (PackedMatrix& matrix : *matrices) {
    matrix.pack_rows(0, spec.out_features, rows.data());
    if (is_channel(spec.dtype)) {
      matrix.set_channel_scales(0, std::vector<float>(static_cast<size_t>(spec.out_features), 0.01f));
    }
  }
  return std::move(*matrices);
}

void bench_format(DType dtype, KOrder order, const Options& options, const Limits& limits, ComputePool& pool) {
  const int64_t outputs = options.outputs, features = options.features;
  const MatmulSpec spec{.out_features = outputs,
                        .in_features = features,
                        .dtype = dtype,
                        .k_order = order,
                        .tree_unit = order == KOrder::kTree ? 256 : 0,
                        .isa = options.isa};
  // Enough copies that one row's weights come from memory, not from a cache.
  const size_t file_bytes = static_cast<size_t>(tensor::dtype_bytes(dtype, outputs * features));
  const auto copies = random_matrices(spec, 1 + static_cast<int64_t>((options.working_set_mb << 20) / file_bytes));
  if (copies.empty()) return;
  const size_t bytes = copies.size() * copies[0].bytes();
  constexpr int64_t kManyRows = 512;
  std::vector<float> x(static_cast<size_t>(kManyRows * features), 0.5f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 255) / 127.0f - 1.0f;
  std::vector<float> y(static_cast<size_t>(kManyRows * outputs));
  auto activations = ActivationBuffer::allocate(kManyRows, features);
  if (!activations) return;
  const auto multiply = [&](const PackedMatrix& w) { matmul(w, *activations, nullptr, y.data(), outputs, pool); };
  const auto run = [&](int64_t row_count, int runs, size_t used) {
    activations->quantize(x.data(), features, row_count, features, activation_format(dtype), options.isa, pool,
                          copies[0].static_quant());
    return best_seconds(runs, [&] {
      for (size_t i = 0; i < used; ++i) multiply(copies[i]);
    });
  };
  const double one = static_cast<double>(bytes) / run(1, options.working_set_mb == 0 ? 200 : 5, copies.size());
  const auto rows = random_rows(dtype, outputs * features);
  auto unpacked = PackedMatrix::reserve(spec);
  if (!unpacked) return;
  const double pack_seconds = best_seconds(3, [&] { unpacked->pack_rows(0, outputs, rows.data()); });
  const double operations = 2.0 * static_cast<double>(outputs * features);
  const double eight = operations * 8 * static_cast<double>(copies.size()) / run(8, 2, copies.size());
  const double many = operations * kManyRows / run(kManyRows, 3, 1);
  const auto format = activation_format(dtype);
  const double peak = format == ActivationFormat::kBF16  ? limits.bf16
                      : format == ActivationFormat::kF32 ? limits.f32
                                                         : limits.int8;
  fmt::print(
      "{:12} {:10} 1 row {:6.1f} GB/s {:4.0f} %   8 rows {:7.1f} GOP/s   512 rows {:7.1f} GOP/s {:4.0f} %   "
      "pack {:4.1f} GB/s\n",
      tensor::dtype_name(dtype), order == KOrder::kTree ? "tree" : "sequential", one / 1e9, 100 * one / limits.read,
      eight / 1e9, many / 1e9, 100 * many / peak, static_cast<double>(rows.size()) / pack_seconds / 1e9);
}

// A step of decode over experts: 8 of 64 matrices of 2048 x 2048, one row each, in one call; and in a call each.
void bench_experts(DType dtype, const Options& options, const Limits& limits, ComputePool& pool) {
  constexpr int64_t kSize = 2048, kExperts = 64, kUsed = 8;
  const auto experts =
      random_matrices({.out_features = kSize, .in_features = kSize, .dtype = dtype, .isa = options.isa}, kExperts);
  if (experts.empty()) return;
  const std::vector<float> x(static_cast<size_t>(kUsed * kSize), 0.5f);
  std::vector<float> y(x.size());
  auto activations = ActivationBuffer::allocate(kUsed, kSize);
  if (!activations) return;
  const auto gigabytes = [&](bool together) {
    const double seconds = best_seconds(5, [&] {
      for (size_t first = 0; first < kExperts; first += kUsed) {
        MatmulGroup groups[kUsed];
        for (size_t i = 0; i < kUsed; ++i) {
          groups[i] = {.w = &experts[first + i], .row_begin = static_cast<int64_t>(i), .row_count = 1};
        }
        activations->quantize(x.data(), kSize, kUsed, kSize, activation_format(dtype), options.isa, pool);
        for (size_t i = 0; i < kUsed && !together; ++i) {
          matmul_groups({groups + i, 1}, *activations, y.data(), kSize, pool);
        }
        if (together) matmul_groups(groups, *activations, y.data(), kSize, pool);
      }
    });
    return static_cast<double>(kExperts) * static_cast<double>(experts[0].bytes()) / seconds;
  };
  const double together = gigabytes(true), apart = gigabytes(false);
  fmt::print("{:12} 8 experts x 1 row: one call {:6.1f} GB/s {:4.0f} %   8 calls {:6.1f} GB/s {:4.0f} %\n",
             tensor::dtype_name(dtype), together / 1e9, 100 * together / limits.read, apart / 1e9,
             100 * apart / limits.read);
}

// Absorbed MLA of one layer: 128 heads of 512 x 128, quantising included.
void bench_heads(DType dtype, const Options& options, const Limits& limits, ComputePool& pool) {
  constexpr int64_t kHeads = 128, kOutputs = 512, kInputs = 128;
  constexpr int64_t kLayers = 4;  // more than the caches hold
  const auto heads = random_matrices(
      {.out_features = kOutputs, .in_features = kInputs, .dtype = dtype, .isa = options.isa}, kHeads * kLayers);
  if (heads.empty()) return;
  for (int64_t row_count : {1, 64}) {
    const std::vector<float> x(static_cast<size_t>(row_count * kHeads * kInputs), 0.5f);
    std::vector<float> y(static_cast<size_t>(row_count * kHeads * kOutputs));
    auto scratch = ActivationBuffer::allocate(row_count * kHeads, kInputs);
    if (!scratch) return;
    const double seconds = best_seconds(5, [&] {
      for (size_t layer = 0; layer < kLayers; ++layer) {
        matmul_heads(std::span(heads).subspan(layer * kHeads, kHeads), x.data(), kHeads * kInputs, row_count, y.data(),
                     kHeads * kOutputs, *scratch, pool);
      }
    });
    const double bytes = static_cast<double>(heads.size()) * static_cast<double>(heads[0].bytes());
    const double operations = 2.0 * static_cast<double>(std::ssize(heads) * kOutputs * kInputs * row_count);
    fmt::print("{:12} 128 heads of 512 x 128, {:3} rows: {:6.1f} GB/s {:4.0f} %   {:7.1f} GOP/s\n",
               tensor::dtype_name(dtype), row_count, bytes / seconds / 1e9, 100 * bytes / seconds / limits.read,
               operations / seconds / 1e9);
  }
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") options.threads = std::stoi(value);
    if (flag == "--isa") options.isa = tensor::parse_isa(value).value_or(options.isa);
    if (flag == "--filter") options.filter = value;
    if (flag == "--outputs") options.outputs = std::stoll(value);
    if (flag == "--working-set-mb") options.working_set_mb = std::stoull(value);
    if (flag == "--features") options.features = std::stoll(value);
  }
  ComputePool pool({.threads = options.threads});
  const bool wide = tensor::detect_isa() == tensor::Isa::kAvx512;
  Limits limits{read_bytes_per_second(pool), 0, 0, 0};
  if (wide) {
    limits.int8 = peak_operations_per_second(pool, burn_vnni);
    limits.bf16 = peak_operations_per_second(pool, burn_bf16);
    limits.f32 = peak_operations_per_second(pool, burn_fma);
  }
  fmt::print(
      "limits at {} threads: read {:.1f} GB/s, int8 {:.0f}, bf16 {:.0f}, f32 {:.0f} GOP/s; kernels: {}; W {} x {}\n",
      options.threads, limits.read / 1e9, limits.int8 / 1e9, limits.bf16 / 1e9, limits.f32 / 1e9,
      tensor::isa_name(options.isa), options.outputs, options.features);
  for (DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
        DType::kBF16, DType::kF16, DType::kF32, DType::kFp8Block, DType::kMxfp8, DType::kMxfp4, DType::kInt4Group32,
        DType::kInt8Channel, DType::kInt4Channel, DType::kInt8Static}) {
    if (!options.filter.empty() && tensor::dtype_name(dtype).find(options.filter) == std::string_view::npos) continue;
    for (KOrder order : {KOrder::kSequential, KOrder::kTree}) bench_format(dtype, order, options, limits, pool);
  }
  const auto wanted = [&](DType dtype, std::string_view kind) {
    return options.filter.empty() || options.filter == kind ||
           tensor::dtype_name(dtype).find(options.filter) != std::string_view::npos;
  };
  for (DType dtype : {DType::kMxfp4, DType::kInt4Group32, DType::kFp8Block, DType::kInt4Channel}) {
    if (wanted(dtype, "experts")) bench_experts(dtype, options, limits, pool);
  }
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    if (wanted(dtype, "heads")) bench_heads(dtype, options, limits, pool);
  }
  return 0;
}

}  // namespace
}  // namespace baton::kernels

int main(int argc, char** argv) { return baton::kernels::run(argc, argv); }
