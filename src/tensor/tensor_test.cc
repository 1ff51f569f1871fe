// Conversions are exact over every 16-bit value; buffers are zeroed and aligned; a missing file is an error with its
// path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/buffer.h"
#include "tensor/cpu.h"
#include "tensor/dtype.h"
#include "tensor/float_convert.h"

namespace baton::tensor {
namespace {

TEST(FloatConvert, EveryHalfSurvivesTheRoundTripAndMatchesTheCompiler) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_float(half);
    const float expected = static_cast<float>(std::bit_cast<_Float16>(half));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(expected)) << bits;
    ASSERT_EQ(float_to_f16(value), half) << bits;
    const float wide = bf16_to_float(half);
    if (!std::isnan(wide)) {
      ASSERT_EQ(float_to_bf16(wide), half) << bits;
    }
  }
}

TEST(FloatConvert, RoundsToNearestEvenLikeTheCompiler) {
  uint32_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = std::bit_cast<float>(state);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_f16(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << state;
  }
  EXPECT_EQ(float_to_bf16(1.00390625f), 0x3f80);  // halfway, to even
  EXPECT_EQ(float_to_bf16(1.01171875f), 0x3f82);  // halfway, to even
  EXPECT_EQ(float_to_bf16(1.00390637f), 0x3f81);
}

TEST(Buffer, IsZeroedAlignedAndMovable) {
  for (size_t bytes : {size_t{1}, size_t{5000}, size_t{9} << 20}) {
    auto made = Buffer::allocate(bytes);
    ASSERT_TRUE(made.has_value());
    Buffer buffer = std::move(*made);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(buffer.data()[bytes - 1], std::byte{0});
    buffer.data()[bytes - 1] = std::byte{1};
  }
}

TEST(MappedFile, AMissingFileIsNamed) {
  const auto file = MappedFile::open("/nowhere/model.gguf");
  ASSERT_FALSE(file.has_value());
  EXPECT_THAT(file.error().to_string(), testing::HasSubstr("/nowhere/model.gguf"));
}

TEST(Cpu, LimitsAreSane) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_GT(available_memory_bytes(), 1 << 20);
  EXPECT_EQ(parse_isa(isa_name(detect_isa())), detect_isa());
}

TEST(DType, BlockSizes) {
  EXPECT_EQ(dtype_bytes(DType::kQ4_1, 576), 360);
  EXPECT_EQ(dtype_bytes(DType::kBF16, 3), 6);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::kBF16);
}

}  // namespace
}  // namespace baton::tensor
