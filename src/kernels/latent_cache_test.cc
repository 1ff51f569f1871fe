// The bytes of quantised latents and index keys: their layout, scales and rounding, the same on every Isa.
#include "kernels/latent_cache.h"

#include <gtest/gtest.h>

#include <bit>

#include "kernels/latent_ops.h"
#include "kernels/latent_test_data.h"

namespace baton::kernels {
namespace {

using namespace test;

// Rows of very different sizes, zeros, and a group of one large value among small ones.
std::vector<float> rows_of(int rows, int width, unsigned seed) {
  std::vector<float> x = random_floats(static_cast<size_t>(rows) * width, seed);
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < width; ++i) {
      float& v = x[static_cast<size_t>(r) * width + i];
      if (r % 5 == 1) v *= 1e4f;
      if (r % 5 == 2) v = i % 3 == 0 ? 0.0f : v * 1e-6f;
      if (r % 5 == 3) v = 0;
      if (r % 5 == 4) v = i == width / 2 ? -300.0f : v;
    }
  }
  return x;
}

// The stated rule, one value at a time.
struct Code {
  uint8_t bits;
  float scale;
};
Code code_of(float x, float largest, DType dtype, bool f16_scale) {
  float scale = std::max(largest / (dtype == DType::kI8 ? 127.0f : 448.0f), 0x1p-126f);
  if (f16_scale) {
    scale = tensor::f16_to_float(tensor::float_to_f16(std::clamp(scale, 0x1p-24f, 65504.0f)));
  }
  const float ratio = x / scale;
  if (dtype == DType::kF8E4M3) return {tensor::float_to_e4m3(ratio), scale};
  return {static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::clamp(ratio, -127.0f, 127.0f)))), scale};
}
float largest_of(const float* x, int n) {
  float top = 0;
  for (int i = 0; i < n; ++i) top = std::max(top, std::abs(x[i]));
  return top;
}

struct Widths {
  int rank, rope;
};
class LatentBytes : public testing::TestWithParam<Widths> {};
INSTANTIATE_TEST_SUITE_P(Cache, LatentBytes,
                         testing::Values(Widths{512, 64}, Widths{32, 8}, Widths{200, 10}, Widths{128, 0}));

TEST_P(LatentBytes, FollowTheStatedRule) {
  const auto [rank, rope] = GetParam();
  const int rows = 23;
  const auto latent = rows_of(rows, rank, 1), key = random_floats(static_cast<size_t>(rows) * (rope + 1), 2);
  for (DType dtype : {DType::kF8E4M3, DType::kI8}) {
    const PagedEntry entry = {.kind = PagedKind::kLatent, .dim = rank, .rope_dim = rope, .dtype = dtype};
    for (Isa isa : isas()) {
      TokenCache cache(entry, rows, 16);
      ComputePool pool({.threads = 2, .spin_us = 0});
      const SequenceSlice slice = {.block_table = cache.table.data(), .row_count = rows};
      write_latents(cache.view, {&slice, 1}, latent.data(), rank, key.data(), rope, isa, pool);
      for (int r = 0; r < rows; ++r) {
        const std::byte* at = cache.token(r);
        const std::byte* scales = at + rank;
        for (int d = 0; d < rank; ++d) {
          const float* group = latent.data() + r * rank + d / 128 * 128;
          const Code want =
              code_of(latent[r * rank + d], largest_of(group, std::min(128, rank - d / 128 * 128)), dtype, false);
          ASSERT_EQ(static_cast<uint8_t>(at[d]), want.bits) << isa_name(isa) << " row " << r << " dim " << d;
          ASSERT_EQ(read_element(scales, d / 128, DType::kF32), want.scale) << isa_name(isa) << " row " << r;
        }
        for (int d = 0; d < rope; ++d) {
          const float want = tensor::bf16_to_float(tensor::float_to_bf16(key[r * rope + d]));
          ASSERT_EQ(read_element(scales + (rank + 127) / 128 * 4, d, DType::kBF16), want);
        }
      }
    }
  }
}

TEST_P(LatentBytes, PlainElementsAreRoundedToNearestEven) {
  const auto [rank, rope] = GetParam();
  const int rows = 9;
  const auto latent = rows_of(rows, rank, 3), key = random_floats(static_cast<size_t>(rows) * (rope + 1), 4);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const PagedEntry entry = {.kind = PagedKind::kLatent, .dim = rank, .rope_dim = rope, .dtype = dtype};
    for (Isa isa : isas()) {
      TokenCache cache(entry, rows, 4);
      ComputePool pool({.threads = 1, .spin_us = 0});
      const SequenceSlice slice = {.block_table = cache.table.data(), .row_count = rows};
      write_latents(cache.view, {&slice, 1}, latent.data(), rank, key.data(), rope, isa, pool);
      for (int r = 0; r < rows; ++r) {
        for (int d = 0; d < rank + rope; ++d) {
          float want = d < rank ? latent[r * rank + d] : key[r * rope + d - rank];
          if (dtype == DType::kF16) want = tensor::f16_to_float(tensor::float_to_f16(want));
          if (dtype == DType::kBF16) want = tensor::bf16_to_float(tensor::float_to_bf16(want));
          const float got = read_element(cache.token(r), d, dtype);
          ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << isa_name(isa);
        }
      }
    }
  }
}

TEST(IndexKeyBytes, FollowTheStatedRule) {
  for (int dim : {128, 24}) {
    const int rows = 17;
    const auto keys = rows_of(rows, dim, 5);
    for (DType dtype : {DType::kF8E4M3, DType::kI8}) {
      const PagedEntry entry = {.kind = PagedKind::kIndexKeys, .dim = dim, .dtype = dtype};
      for (Isa isa : isas()) {
        TokenCache cache(entry, rows, 8);
        ComputePool pool({.threads = 2, .spin_us = 0});
        const SequenceSlice slice = {.block_table = cache.table.data(), .row_count = rows};
        write_index_keys(cache.view, {&slice, 1}, keys.data(), dim, isa, pool);
        for (int r = 0; r < rows; ++r) {
          const float* key = keys.data() + r * dim;
          for (int d = 0; d < dim; ++d) {
            const Code want = code_of(key[d], largest_of(key, dim), dtype, dtype == DType::kI8);
            ASSERT_EQ(static_cast<uint8_t>(cache.token(r)[d]), want.bits) << isa_name(isa) << " row " << r;
            const DType scale_type = dtype == DType::kI8 ? DType::kF16 : DType::kF32;
            ASSERT_EQ(read_element(cache.token(r) + dim, 0, scale_type), want.scale);
          }
        }
      }
    }
  }
}

// Published sizes: FlashMLA and Ascend keep 656 bytes for rank 512 and a rotary key of 64.
TEST(LatentBytes, HaveThePublishedSizes) {
  PagedEntry entry = {.kind = PagedKind::kLatent, .dim = 512, .rope_dim = 64, .dtype = DType::kF8E4M3};
  EXPECT_EQ(entry_token_bytes(entry), 656);
  entry = {.kind = PagedKind::kIndexKeys, .dim = 128, .dtype = DType::kF8E4M3};
  EXPECT_EQ(entry_token_bytes(entry), 132);
  entry.dtype = DType::kI8;
  EXPECT_EQ(entry_token_bytes(entry), 130);
}

TEST(LatentTile, ReadsEveryCodeOnEveryIsa) {
  for (DType dtype : {DType::kF8E4M3, DType::kI8}) {
    const PagedEntry entry = {.kind = PagedKind::kLatent, .dim = 256, .dtype = dtype};
    std::vector<std::byte> token(entry_token_bytes(entry));
    for (int i = 0; i < 256; ++i) token[i] = static_cast<std::byte>(i);
    const float scales[2] = {1.0f, 0x1.123456p-5f};
    std::memcpy(token.data() + 256, scales, 8);
    const std::byte* row = token.data();
    for (Isa isa : isas()) {
      std::vector<float> tile(tile_stride(entry));
      latent_ops(isa).load_tile(entry, &row, 1, tile_stride(entry), tile.data());
      for (int i = 0; i < 256; ++i) {
        const float want = read_element(row, i, dtype) * scales[i / 128];
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(tile[i])) << i;
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(tile[i]), std::bit_cast<uint32_t>(want)) << isa_name(isa) << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels
