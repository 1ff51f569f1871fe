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
// Of safetensors checkpoints.
inline const std::vector<DType>& scaled_types() {
  static const std::vector<DType> types{DType::kFp8Block,    DType::kMxfp8,       DType::kMxfp4,
                                        DType::kInt4Group32, DType::kInt8Channel, DType::kInt4Channel,
                                        DType::kInt8Static};
  return types;
}
inline const std::vector<DType>& all_types() {
  static const std::vector<DType> types = [] {
    auto list = quantized_types();
    list.insert(list.end(), {DType::kF32, DType::kF16, DType::kBF16});
    list.insert(list.end(), scaled_types().begin(), scaled_types().end());
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

// Random codes and small finite scales in a block of a format of scaled_types().
inline void random_block(Random& random, DType dtype, std::byte* block) {
  std::normal_distribution<float> normal(0, 0.05f);
  const float scale = normal(random);
  const uint16_t half = tensor::float_to_bf16(scale);
  if (dtype == DType::kFp8Block) std::memcpy(block, &scale, 4);
  if (dtype == DType::kInt4Group32) std::memcpy(block, &half, 2);
  if (dtype == DType::kMxfp8 || dtype == DType::kMxfp4) *block = static_cast<std::byte>(118 + random() % 10);
  if (!is_fp8(dtype)) return;
  for (int i = scale_bytes(dtype); i < tensor::dtype_info(dtype).block_bytes; ++i) {
    if ((block[i] & std::byte{0x7f}) == std::byte{0x7f}) block[i] ^= std::byte{0x40};  // 0x7f is a NaN
  }
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
    if (!tensor::is_gguf_weight(dtype)) {
      random_block(random, dtype, bytes.data() + at);
      continue;
    }
    put16(at + (dtype == DType::kQ6_K ? 208 : 0), tensor::float_to_f16(normal(random)));
    if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K || dtype == DType::kQ5_K) {
      put16(at + 2, tensor::float_to_f16(normal(random)));
    }
  }
  return bytes;
}

// int8_static as ModelSlim writes it: quant_bias takes the offset's part out.
inline void set_static_values(PackedMatrix& matrix, const std::vector<std::byte>& bytes) {
  const MatmulSpec& spec = matrix.spec();
  const StaticQuant quant{.input_scale = 0.03f, .input_offset = 5};
  std::vector<int32_t> bias(static_cast<size_t>(spec.out_features));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bias[i / static_cast<size_t>(spec.in_features)] -= quant.input_offset * static_cast<int8_t>(bytes[i]);
  }
  matrix.set_static(quant, bias);
}

inline PackedMatrix pack(const MatmulSpec& spec, const std::vector<std::byte>& bytes) {
  auto matrix = PackedMatrix::reserve(spec);
  EXPECT_TRUE(matrix.has_value()) << (matrix ? "" : matrix.error().to_string());
  matrix->pack_rows(0, spec.out_features, bytes.data());
  if (is_channel(spec.dtype)) {
    Random random(99);
    auto scales = random_floats(random, spec.out_features);
    for (auto& scale : scales) scale *= 0.01f;
    matrix->set_channel_scales(0, scales);
  }
  if (spec.dtype == DType::kInt8Static) set_static_values(*matrix, bytes);
  const auto sound = matrix->finish();
  EXPECT_TRUE(sound.has_value()) << (sound ? "" : sound.error().to_string());
  return std::move(*matrix);
}

inline ActivationBuffer quantize(const std::vector<float>& x, int64_t rows, int64_t features, ActivationFormat format,
                                 Isa isa, ComputePool& pool, StaticQuant quant = {}) {
  auto buffer = ActivationBuffer::allocate(rows, features);
  EXPECT_TRUE(buffer.has_value());
  buffer->quantize(x.data(), features, rows, features, format, isa, pool, quant);
  return std::move(*buffer);
}
inline ActivationBuffer quantize_for(const PackedMatrix& w, const std::vector<float>& x, int64_t rows,
                                     ComputePool& pool) {
  const MatmulSpec& spec = w.spec();
  return quantize(x, rows, spec.in_features, activation_format(spec.dtype), spec.isa, pool, w.static_quant());
}

// [rows, out_features] of w on isa.
inline std::vector<float> multiply(const PackedMatrix& w, const std::vector<float>& x, int64_t rows, ComputePool& pool,
                                   const float* bias = nullptr) {
  const auto& spec = w.spec();
  const auto buffer = quantize_for(w, x, rows, pool);
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
      const auto group = static_cast<size_t>(x.features() / x.scales_per_row());
      float scale = x.scales()[static_cast<size_t>(row * x.scales_per_row()) + k / group];
      if (x.format() == ActivationFormat::kInt8Static) scale *= x.static_quant().input_scale;
      values[k] = scale * static_cast<float>(static_cast<int8_t>(bytes[k]) - x.static_quant().input_offset);
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
