// What the matmul tests share: random weights as file bytes, packing, and the instruction sets this machine runs.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "tensor/float_convert.h"

namespace baton::kernels::test {

using tensor::DType;
using tensor::Isa;

inline const std::vector<DType>& quantized_types() {
  static const std::vector<DType> types{DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                        DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
  return types;
}
inline const std::vector<DType>& all_types() {
  static const std::vector<DType> types = [] {
    auto list = quantized_types();
    list.insert(list.end(), {DType::kF32, DType::kF16, DType::kBF16});
    return list;
  }();
  return types;
}
inline std::vector<Isa> isas() {
  std::vector<Isa> list{Isa::kPortable};
  if (tensor::detect_isa() >= Isa::kAvx2) list.push_back(Isa::kAvx2);
  if (tensor::detect_isa() >= Isa::kAvx512) list.push_back(Isa::kAvx512);
  return list;
}

using Random = std::mt19937;

inline std::vector<float> random_floats(Random& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (auto& value : values) value = normal(random);
  return values;
}

// Random bytes with small finite f16 scales where the format has them.
inline std::vector<std::byte> random_weights(Random& random, DType dtype, int64_t elements) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor::dtype_bytes(dtype, elements)));
  std::normal_distribution<float> normal(0, 0.05f);
  const auto put16 = [&](size_t at, uint16_t value) { std::memcpy(bytes.data() + at, &value, 2); };
  if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) {
    for (size_t i = 0; i < static_cast<size_t>(elements); ++i) {
      const float value = normal(random);
      if (dtype == DType::kF32) std::memcpy(bytes.data() + i * 4, &value, 4);
      if (dtype == DType::kF16) put16(i * 2, tensor::float_to_f16(value));
      if (dtype == DType::kBF16) put16(i * 2, tensor::float_to_bf16(value));
    }
    return bytes;
  }
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  const auto block = static_cast<size_t>(tensor::dtype_info(dtype).block_bytes);
  for (size_t at = 0; at < bytes.size(); at += block) {
    put16(at + (dtype == DType::kQ6_K ? 208 : 0), tensor::float_to_f16(normal(random)));
    if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K || dtype == DType::kQ5_K) {
      put16(at + 2, tensor::float_to_f16(normal(random)));
    }
  }
  return bytes;
}

inline PackedMatrix pack(const MatmulSpec& spec, const std::vector<std::byte>& bytes) {
  auto matrix = PackedMatrix::reserve(spec);
  EXPECT_TRUE(matrix.has_value()) << (matrix ? "" : matrix.error().to_string());
  matrix->pack_rows(0, spec.out_features, bytes.data());
  return std::move(*matrix);
}

inline ActivationBuffer quantize(const std::vector<float>& x, int64_t rows, int64_t features, ActivationFormat format,
                                 Isa isa, ComputePool& pool) {
  auto buffer = ActivationBuffer::allocate(rows, features);
  EXPECT_TRUE(buffer.has_value());
  buffer->quantize(x.data(), features, rows, features, format, isa, pool);
  return std::move(*buffer);
}

// [rows, out_features] of w on isa.
inline std::vector<float> multiply(const PackedMatrix& w, const std::vector<float>& x, int64_t rows, ComputePool& pool,
                                   const float* bias = nullptr) {
  const auto& spec = w.spec();
  const auto buffer = quantize(x, rows, spec.in_features, activation_format(spec.dtype), spec.isa, pool);
  std::vector<float> y(static_cast<size_t>(rows * spec.out_features), -1e30f);
  matmul(w, buffer, bias, y.data(), spec.out_features, pool);
  return y;
}

// What the activations of a row stand for after quantisation: [features].
inline std::vector<float> activation_values(const ActivationBuffer& x, int64_t row) {
  std::vector<float> values(static_cast<size_t>(x.features()));
  const std::byte* bytes = x.values() + row * x.row_stride_bytes();
  for (size_t k = 0; k < values.size(); ++k) {
    if (x.format() == ActivationFormat::kF32) {
      std::memcpy(&values[k], bytes + k * 4, 4);
    } else if (x.format() == ActivationFormat::kBF16) {
      uint16_t bits;
      std::memcpy(&bits, bytes + k * 2, 2);
      values[k] = tensor::bf16_to_float(bits);
    } else {
      const size_t group = x.format() == ActivationFormat::kInt8Group32 ? 32 : 256;
      const float scale = x.scales()[static_cast<size_t>(row * x.scales_per_row()) + k / group];
      values[k] = scale * static_cast<float>(static_cast<int8_t>(bytes[k]));
    }
  }
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::string name_of(DType dtype, Isa isa) {
  return std::string(tensor::dtype_name(dtype)) + " " + std::string(tensor::isa_name(isa));
}

}  // namespace baton::kernels::test
