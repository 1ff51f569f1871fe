// The formats of safetensors checkpoints at their edges: the largest integers, the smallest and largest scales, and the
// values of every code.
#include <cmath>

#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

// x in -128 .. 127 through int8_static with scale 1, by W of bytes of any value: the sums are exact integers.
TEST(MatmulScaled, Int8SumsAreExactAtTheirExtremes) {
  const int64_t features = 1030, outputs = 18, rows = 3;
  Random random(31);
  ComputePool pool({.threads = 1});
  std::vector<std::byte> w(outputs * features);
  std::vector<float> x(rows * features);
  for (auto& value : w) value = static_cast<std::byte>(random());
  for (auto& value : x) value = static_cast<float>(static_cast<int>(random() % 256) - 128);
  std::fill_n(w.begin(), 2 * features, std::byte{0x80});  // two outputs of -128
  std::fill_n(x.begin(), features, -128.0f);              // a row of -128
  std::vector<int32_t> bias(outputs);
  for (auto& value : bias) value = static_cast<int32_t>(random() % 2'000'000) - 1'000'000;
  for (Isa isa : isas()) {
    auto matrix = PackedMatrix::reserve(
        {.out_features = outputs, .in_features = features, .dtype = DType::kInt8Static, .isa = isa});
    ASSERT_TRUE(matrix.has_value());
    matrix->pack_rows(0, outputs, w.data());
    matrix->set_channel_scales(0, std::vector<float>(outputs, 1.0f));
    matrix->set_static({}, bias);
    ASSERT_TRUE(matrix->finish().has_value());
    const auto y = multiply(*matrix, x, rows, pool);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < outputs; ++n) {
        int64_t sum = bias[static_cast<size_t>(n)];
        for (int64_t k = 0; k < features; ++k) {
          sum += static_cast<int64_t>(x[static_cast<size_t>(r * features + k)]) *
                 static_cast<int8_t>(w[static_cast<size_t>(n * features + k)]);
        }
        ASSERT_EQ(y[static_cast<size_t>(r * outputs + n)], static_cast<float>(sum)) << tensor::isa_name(isa);
      }
    }
  }
}

// The longest K: int32 sums at the edge of their range, x = -128 or 127 and W = -128 or 127 throughout.
TEST(MatmulScaled, TheLongestRowsDoNotOverflow) {
  const int64_t features = 131071;
  ComputePool pool({.threads = 1});
  std::vector<std::byte> w(2 * features, std::byte{0x80});
  std::fill_n(w.begin(), features, std::byte{0x7f});
  std::vector<float> x(2 * features, -128.0f);
  std::fill_n(x.begin(), features, 127.0f);
  const std::vector<double> expected{127. * 127 * features, -127. * 128 * features, -128. * 127 * features,
                                     128. * 128 * features};
  for (Isa isa : isas()) {
    auto matrix =
        PackedMatrix::reserve({.out_features = 2, .in_features = features, .dtype = DType::kInt8Static, .isa = isa});
    ASSERT_TRUE(matrix.has_value());
    matrix->pack_rows(0, 2, w.data());
    matrix->set_channel_scales(0, std::vector<float>(2, 1.0f));
    matrix->set_static({}, std::vector<int32_t>(2, 0));
    const auto y = multiply(*matrix, x, 2, pool);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(y[i], static_cast<float>(expected[i])) << i << tensor::isa_name(isa);
  }
}

// One input at a time: y = x * scale * value for every code, with scales from subnormal to the largest.
TEST(MatmulScaled, EveryCodeAtEveryPowerOfTwo) {
  ComputePool pool({.threads = 1});
  for (DType dtype : {DType::kMxfp4, DType::kMxfp8}) {
    const int codes = dtype == DType::kMxfp4 ? 16 : 256;
    for (int exponent : {0, 1, 2, 3, 60, 126, 127, 128, 200, 253, 254}) {
      // Output n has code n at input n % 32.
      std::vector<std::byte> bytes(static_cast<size_t>(codes * tensor::dtype_info(dtype).block_bytes));
      std::vector<double> values;
      for (int n = 0; n < codes; ++n) {
        std::byte* block = bytes.data() + n * tensor::dtype_info(dtype).block_bytes;
        block[0] = static_cast<std::byte>(exponent);
        const bool nan = dtype == DType::kMxfp8 && (n & 0x7f) == 0x7f;
        const auto code = static_cast<uint8_t>(nan ? 0 : n);
        if (dtype == DType::kMxfp4) {
          block[1 + n % 32 / 2] = static_cast<std::byte>(n % 2 == 0 ? code : code << 4);
          values.push_back(0.5 * tensor::e2m1_doubled(code));
        } else {
          block[1 + n % 32] = static_cast<std::byte>(code);
          values.push_back(tensor::e4m3_to_float(code));
        }
      }
      // exact in int8 and in bf16: 127 in one place of each group, or one power of two
      const std::vector<float> x(32, dtype == DType::kMxfp4 ? 127.0f : 0.25f);
      for (Isa isa : isas()) {
        const auto w = pack({.out_features = codes, .in_features = 32, .dtype = dtype, .isa = isa}, bytes);
        const auto y = multiply(w, x, 1, pool);
        for (int n = 0; n < codes; ++n) {
          const double exact = std::ldexp(values[static_cast<size_t>(n)] * double{x[0]}, exponent - 127);
          ASSERT_EQ(y[static_cast<size_t>(n)], static_cast<float>(exact))
              << name_of(dtype, isa) << " code " << n << " exponent " << exponent;
        }
      }
    }
  }
}

// Random codes with scales over their whole range: still one answer on every instruction set.
TEST(MatmulScaled, WildScalesGiveTheSameBits) {
  Random random(32);
  ComputePool pool({.threads = 1});
  const int64_t features = 128, outputs = 40;
  for (int trial = 0; trial < 10; ++trial) {
    auto bytes = random_weights(random, DType::kMxfp4, outputs * features);
    for (size_t at = 0; at < bytes.size(); at += 17) bytes[at] = static_cast<std::byte>(random() % 255);
    auto x = random_floats(random, 3 * features);
    for (auto& value : x) value = std::ldexp(value, static_cast<int>(random() % 120) - 90);
    std::vector<float> first;
    for (Isa isa : isas()) {
      const auto y =
          multiply(pack({.out_features = outputs, .in_features = features, .dtype = DType::kMxfp4, .isa = isa}, bytes),
                   x, 3, pool);
      if (first.empty()) first = y;
      ASSERT_TRUE(same_bits(first, y)) << tensor::isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::test
