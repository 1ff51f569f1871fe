// Weight formats, experts and heads (kernel_bench.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/bench_support.h"
#include "kernels/matmul.h"
#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

using tensor::DType;

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

// Matrices of the same random weights in one allocation; none, and a line that says why, when the format can't hold
// them.
std::vector<PackedMatrix> random_matrices(const MatmulSpec& spec, int64_t count, const Bench& bench) {
  auto matrices = PackedMatrix::reserve_many(spec, count);
  if (!matrices) {
    bench.check(std::string(tensor::dtype_name(spec.dtype)), false, matrices.error().to_string());
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

double peak_of(DType dtype, const KernelLimits& limits) {
  const auto format = activation_format(dtype);
  return format == ActivationFormat::kBF16  ? limits.bf16_gops
         : format == ActivationFormat::kF32 ? limits.f32_gops
                                            : limits.int8_gops;
}

void bench_packing(const MatmulSpec& spec, const std::string& name, Bench& bench) {
  if (!bench.wants(name)) return;
  const auto rows = random_rows(spec.dtype, spec.out_features * spec.in_features);
  auto unpacked = PackedMatrix::reserve(spec);
  if (!unpacked) return;
  const double seconds = seconds_of(1, 3, [&] { unpacked->pack_rows(0, spec.out_features, rows.data()); });
  bench.line(name, seconds, static_cast<double>(rows.size()), 0);
}

void bench_format(DType dtype, KOrder order, Bench& bench) {
  const auto& options = bench.options;
  const int64_t outputs = options.outputs, features = options.features;
  const auto format_name = fmt::format("matmul {}{}", tensor::dtype_name(dtype), order == KOrder::kTree ? " tree" : "");
  const MatmulSpec spec{.out_features = outputs,
                        .in_features = features,
                        .dtype = dtype,
                        .k_order = order,
                        .tree_unit = order == KOrder::kTree ? 256 : 0,
                        .isa = options.isa};
  const auto name_of = [&](int64_t rows) { return fmt::format("{} rows {}", format_name, rows); };
  if (!bench.wants(name_of(1)) && !bench.wants(name_of(8)) && !bench.wants(name_of(512))) return;
  // Enough copies that one row's weights come from memory, not from a cache.
  const int64_t file_bytes = tensor::dtype_bytes(dtype, outputs * features);
  const auto copies = random_matrices(spec, 1 + (options.working_set_mb << 20) / file_bytes, bench);
  if (copies.empty()) return;
  const double bytes = static_cast<double>(copies.size()) * static_cast<double>(copies[0].bytes());
  constexpr int64_t kManyRows = 512;
  std::vector<float> x(static_cast<size_t>(kManyRows * features));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 255) / 127.0f - 1.0f;
  std::vector<float> y(static_cast<size_t>(kManyRows * outputs));
  auto activations = ActivationBuffer::allocate(kManyRows, features);
  if (!activations) return;
  const double operations = 2.0 * static_cast<double>(outputs * features);
  const auto run = [&](int64_t rows, int runs, size_t used, double read) {
    if (!bench.wants(name_of(rows))) return;
    activations->quantize(x.data(), features, rows, features, activation_format(dtype), options.isa, bench.pool,
                          copies[0].static_quant());
    const double seconds = seconds_of(options.threads, runs, [&] {
      for (size_t i = 0; i < used; ++i) matmul(copies[i], *activations, nullptr, y.data(), outputs, bench.pool);
    });
    bench.line(name_of(rows), seconds, read, operations * static_cast<double>(rows) * static_cast<double>(used),
               peak_of(dtype, bench.limits));
  };
  run(1, options.working_set_mb == 0 ? 200 : 5, copies.size(), bytes);
  run(8, 2, copies.size(), bytes);
  run(kManyRows, 3, 1, 0);
  bench_packing(spec, format_name + " pack", bench);
}

// A step of decode over experts: 8 of 64 matrices of 2048 x 2048, one row each, in one call; and in a call each.
void bench_experts(DType dtype, Bench& bench) {
  constexpr int64_t kSize = 2048, kExperts = 64, kUsed = 8;
  const auto name = fmt::format("experts {} 8 of 64, one row each", tensor::dtype_name(dtype));
  if (!bench.wants(name)) return;
  const auto isa = bench.options.isa;
  const auto experts =
      random_matrices({.out_features = kSize, .in_features = kSize, .dtype = dtype, .isa = isa}, kExperts, bench);
  if (experts.empty()) return;
  const std::vector<float> x(static_cast<size_t>(kUsed * kSize), 0.5f);
  std::vector<float> y(x.size());
  auto activations = ActivationBuffer::allocate(kUsed, kSize);
  if (!activations) return;
  const auto run = [&](bool together) {
    const double seconds = seconds_of(bench.options.threads, 5, [&] {
      for (size_t first = 0; first < kExperts; first += kUsed) {
        MatmulGroup groups[kUsed];
        for (size_t i = 0; i < kUsed; ++i) {
          groups[i] = {.w = &experts[first + i], .row_begin = static_cast<int64_t>(i), .row_count = 1};
        }
        activations->quantize(x.data(), kSize, kUsed, kSize, activation_format(dtype), isa, bench.pool);
        for (size_t i = 0; i < kUsed && !together; ++i) {
          matmul_groups({groups + i, 1}, *activations, y.data(), kSize, bench.pool);
        }
        if (together) matmul_groups(groups, *activations, y.data(), kSize, bench.pool);
      }
    });
    const double bytes = static_cast<double>(kExperts) * static_cast<double>(experts[0].bytes());
    bench.line(name + (together ? ", one call" : ", 8 calls"), seconds, bytes, 0);
  };
  run(true);
  run(false);
}

// Absorbed MLA of one layer: 128 heads of 512 x 128, quantising included.
void bench_heads(DType dtype, Bench& bench) {
  constexpr int64_t kHeads = 128, kOutputs = 512, kInputs = 128;
  constexpr int64_t kLayers = 4;  // more than the caches hold
  const auto name = fmt::format("heads {} 128 of 512 x 128", tensor::dtype_name(dtype));
  if (!bench.wants(name)) return;
  const auto heads =
      random_matrices({.out_features = kOutputs, .in_features = kInputs, .dtype = dtype, .isa = bench.options.isa},
                      kHeads * kLayers, bench);
  if (heads.empty()) return;
  for (int64_t row_count : {1, 64}) {
    const std::vector<float> x(static_cast<size_t>(row_count * kHeads * kInputs), 0.5f);
    std::vector<float> y(static_cast<size_t>(row_count * kHeads * kOutputs));
    auto scratch = ActivationBuffer::allocate(row_count * kHeads, kInputs);
    if (!scratch) return;
    const double seconds = seconds_of(bench.options.threads, 5, [&] {
      for (size_t layer = 0; layer < kLayers; ++layer) {
        matmul_heads(std::span(heads).subspan(layer * kHeads, kHeads), x.data(), kHeads * kInputs, row_count, y.data(),
                     kHeads * kOutputs, *scratch, bench.pool);
      }
    });
    const double bytes = static_cast<double>(heads.size()) * static_cast<double>(heads[0].bytes());
    const double operations = 2.0 * static_cast<double>(std::ssize(heads) * kOutputs * kInputs * row_count);
    bench.line(fmt::format("{} rows {}", name, row_count), seconds, bytes, operations, peak_of(dtype, bench.limits));
  }
}

}  // namespace

void bench_matmul(Bench& bench) {
  for (DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
        DType::kBF16, DType::kF16, DType::kF32, DType::kFp8Block, DType::kMxfp8, DType::kMxfp4, DType::kInt4Group32,
        DType::kInt8Channel, DType::kInt4Channel, DType::kInt8Static}) {
    for (KOrder order : {KOrder::kSequential, KOrder::kTree}) bench_format(dtype, order, bench);
  }
  for (DType dtype : {DType::kMxfp4, DType::kInt4Group32, DType::kFp8Block, DType::kInt4Channel}) {
    bench_experts(dtype, bench);
  }
  for (DType dtype : {DType::kBF16, DType::kF32}) bench_heads(dtype, bench);
}

}  // namespace baton::kernels
