// Every quantised weight format: a packed row stands for exactly what weights::dequantize_row says, and a product is
// within the bound of docs/exactness.md of the dequantised weights times the unquantised inputs, summed in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/matmul.h"
#include "tensor/float_convert.h"
#include "weights/dequantize.h"

namespace baton {
namespace {

using kernels::ActivationFormat;
using tensor::DType;
using tensor::Isa;

constexpr int64_t kOutputs = 37, kFeatures = 512, kRows = 4;

std::vector<Isa> isas() {
  std::vector<Isa> list{Isa::kPortable};
  if (tensor::detect_isa() >= Isa::kAvx2) list.push_back(Isa::kAvx2);
  if (tensor::detect_isa() >= Isa::kAvx512) list.push_back(Isa::kAvx512);
  return list;
}

// Random codes, each block's scale (where it has one) of a sane size.
std::vector<std::byte> random_rows(std::mt19937& random, DType dtype) {
  const auto& info = tensor::dtype_info(dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor::dtype_bytes(dtype, kOutputs * kFeatures)));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  std::normal_distribution<float> normal(0, 0.05f);
  if (info.block_elements < 32) return bytes;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
    const float scale = normal(random);
    const uint16_t half = tensor::float_to_bf16(scale), f16 = tensor::float_to_f16(scale);
    std::byte* block = bytes.data() + at;
    if (dtype == DType::kFp8Block || dtype == DType::kMxfp8) {
      for (int i = 1; i < info.block_bytes; ++i) {
        if ((block[i] & std::byte{0x7f}) == std::byte{0x7f}) block[i] ^= std::byte{0x20};  // a NaN
      }
    }
    switch (dtype) {
      case DType::kFp8Block:
        std::memcpy(block, &scale, 4);
        break;
      case DType::kMxfp8:
      case DType::kMxfp4:
        block[0] = static_cast<std::byte>(115 + random() % 12);
        break;
      case DType::kInt4Group32:
        std::memcpy(block, &half, 2);
        break;
      default:
        std::memcpy(block + (dtype == DType::kQ6_K ? 208 : 0), &f16, 2);
        if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K || dtype == DType::kQ5_K) {
          std::memcpy(block + 2, &f16, 2);
        }
    }
  }
  return bytes;
}

// The meaning of a row of a channel format, written out from its definition (y = xq.W * xs *
// scale): two's complement codes, in int4 the even input in the low nibble.
void channel_row(DType dtype, const std::byte* row, float scale, float* out) {
  for (int64_t k = 0; k < kFeatures; ++k) {
    int code = static_cast<int8_t>(row[dtype == DType::kInt4Channel ? k / 2 : k]);
    if (dtype == DType::kInt4Channel) {
      const int nibble = k % 2 == 0 ? code & 15 : code >> 4 & 15;
      code = nibble >= 8 ? nibble - 16 : nibble;
    }
    out[k] = scale * static_cast<float>(code);
  }
}

// The largest error of one input after quantisation, from the largest |x| of its group (docs/exactness.md).
double input_error(ActivationFormat format, float x, double group_maximum) {
  if (format == ActivationFormat::kF32) return 0;
  if (format == ActivationFormat::kBF16) return std::abs(x) * 0x1p-9;
  return group_maximum / 254 * (1 + 0x1p-10);
}

int64_t input_group(ActivationFormat format) {
  if (format == ActivationFormat::kInt8Group32) return 32;
  return format == ActivationFormat::kInt8Group256 ? 256 : kFeatures;
}

struct Case {
  DType dtype;
  std::vector<std::byte> bytes;
  std::vector<float> scales;   // channel formats
  std::vector<float> meaning;  // [outputs, features]
};

Case make_case(std::mt19937& random, DType dtype) {
  Case c{dtype, random_rows(random, dtype), {}, std::vector<float>(kOutputs * kFeatures)};
  std::uniform_real_distribution<float> scale(0.001f, 0.01f);
  for (int64_t n = 0; n < kOutputs; ++n) {
    const std::byte* row = c.bytes.data() + n * tensor::dtype_bytes(dtype, kFeatures);
    float* out = c.meaning.data() + n * kFeatures;
    if (kernels::is_channel(dtype)) {
      c.scales.push_back(scale(random));
      channel_row(dtype, row, c.scales.back(), out);
    } else {
      weights::dequantize_row(dtype, row, kFeatures, out);
    }
  }
  return c;
}

kernels::PackedMatrix pack(const Case& c, Isa isa) {
  auto w = kernels::PackedMatrix::reserve(
      {.out_features = kOutputs, .in_features = kFeatures, .dtype = c.dtype, .isa = isa});
  EXPECT_TRUE(w.has_value());
  w->pack_rows(0, kOutputs, c.bytes.data());
  if (!c.scales.empty()) w->set_channel_scales(0, c.scales);
  EXPECT_TRUE(w->finish().has_value());
  return std::move(*w);
}

void expect_within_bound(const Case& c, Isa isa, const std::vector<float>& x) {
  ComputePool pool({.threads = 1});
  const auto w = pack(c, isa);
  const ActivationFormat format = kernels::activation_format(c.dtype);
  auto activations = kernels::ActivationBuffer::allocate(kRows, kFeatures);
  ASSERT_TRUE(activations.has_value());
  activations->quantize(x.data(), kFeatures, kRows, kFeatures, format, isa, pool);
  std::vector<float> y(kRows * kOutputs);
  kernels::matmul(w, *activations, nullptr, y.data(), kOutputs, pool);
  const int64_t group = input_group(format);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t n = 0; n < kOutputs; ++n) {
      double sum = 0, bound = 0;
      for (int64_t g = 0; g < kFeatures; g += group) {
        double maximum = 0;
        for (int64_t k = g; k < g + group; ++k) maximum = std::max(maximum, std::abs(double{x[r * kFeatures + k]}));
        for (int64_t k = g; k < g + group; ++k) {
          const double weight = c.meaning[n * kFeatures + k], value = x[r * kFeatures + k];
          sum += weight * value;
          bound += std::abs(weight) * input_error(format, x[r * kFeatures + k], maximum);
          bound += std::abs(weight * value) * kFeatures * 0x1p-23;  // fp32 sums
        }
      }
      ASSERT_NEAR(y[r * kOutputs + n], sum, bound) << tensor::dtype_name(c.dtype) << " " << tensor::isa_name(isa);
    }
  }
}

class Formats : public testing::TestWithParam<DType> {};

TEST_P(Formats, PackedRowsMeanWhatTheFileSays) {
  std::mt19937 random(41);
  const Case c = make_case(random, GetParam());
  const auto w = pack(c, Isa::kPortable);
  std::vector<float> row(kFeatures);
  for (int64_t n = 0; n < kOutputs; ++n) {
    kernels::unpack_row(w, n, row.data());
    ASSERT_EQ(std::memcmp(row.data(), c.meaning.data() + n * kFeatures, kFeatures * sizeof(float)), 0) << n;
  }
}

TEST_P(Formats, ProductsAreNearTheDequantisedOnes) {
  std::mt19937 random(42);
  const Case c = make_case(random, GetParam());
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kFeatures);
  for (auto& value : x) value = normal(random);
  for (Isa isa : isas()) expect_within_bound(c, isa, x);
}

INSTANTIATE_TEST_SUITE_P(All, Formats,
                         testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kFp8Block, DType::kMxfp8,
                                         DType::kMxfp4, DType::kInt4Group32, DType::kInt8Channel, DType::kInt4Channel),
                         [](const auto& info) { return std::string(tensor::dtype_name(info.param)); });

}  // namespace
}  // namespace baton
