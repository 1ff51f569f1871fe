// Conversions are exact over every 16-bit value; buffers are zeroed and aligned; a missing file is an error with its
// path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>

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

// Every e4m3 value comes back from its float, and what lies between two goes to the nearer, at a tie to the even one.
TEST(FloatConvert, E4m3RoundsToNearestEven) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(float_to_e4m3(value) & 0x7f, 0x7f);
      continue;
    }
    EXPECT_EQ(float_to_e4m3(value), code);
    if ((code & 0x7f) == 0x7e) continue;
    const float next = e4m3_to_float(static_cast<uint8_t>(code + 1)), middle = (value + next) / 2;
    EXPECT_EQ(float_to_e4m3(middle), code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, value)), code);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, next)), code + 1);
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(float_to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(float_to_e4m3(-1e9f), 0xfe);
}

TEST(FloatConvert, PowersOfTwoAndE2m1) {
  EXPECT_EQ(e8m0_to_float(127), 1.0f);
  EXPECT_EQ(e8m0_to_float(0), 0x1p-127f);
  EXPECT_EQ(e8m0_to_float(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
  EXPECT_EQ(e2m1_doubled(7), 12);
  EXPECT_EQ(e2m1_doubled(9), -1);
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

TEST(MappedFile, AFifoIsRefusedWithoutWaitingForItsWriter) {
  std::string folder = (std::filesystem::temp_directory_path() / "baton_tensor_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/config.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto file = MappedFile::open(path);
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(file.has_value());
  EXPECT_THAT(file.error().to_string(), testing::HasSubstr(path + " is not a regular file"));
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
