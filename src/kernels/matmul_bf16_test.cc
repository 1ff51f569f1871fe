// The two ways to multiply bf16 with AVX-512 must have the same bits, for whatever values.
#include "kernels/matmul_scaled_tiles.h"
#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

using Values = std::vector<uint16_t>;

// Any sign and mantissa; exponents from `low`, `count` of them (0: zeros and subnormals).
Values random_bf16(Random& random, size_t count, unsigned low, unsigned exponents) {
  Values values(count);
  for (auto& value : values) {
    value = static_cast<uint16_t>((random() & 0x807fu) | (low + static_cast<unsigned>(random() % exponents)) << 7);
  }
  return values;
}

std::vector<float> run_tile(TileFunction function, const PackedMatrix& w, const Values& x, int rows) {
  const int64_t features = w.spec().in_features;
  std::vector<float> padded(static_cast<size_t>(rows) * 64 + 16);
  auto* out = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(padded.data()) + 63) / 64 * 64);
  MatmulTile tile;
  tile.layout = &w.layout();
  tile.panels = w.data();
  tile.panel_count = 4;
  tile.rows = rows;
  tile.x = reinterpret_cast<const std::byte*>(x.data());
  tile.x_stride = features * 2;
  tile.features = features;
  tile.segments = w.segments().data();
  tile.segment_count = static_cast<int>(w.segments().size());
  tile.out = out;
  function(tile);
  return {out, out + static_cast<size_t>(rows) * 64};
}

void expect_same(const Values& weights, const Values& x, int64_t features, KOrder order) {
  const auto* bytes = reinterpret_cast<const std::byte*>(weights.data());
  const auto w = pack({.out_features = 64,
                       .in_features = features,
                       .dtype = DType::kBF16,
                       .k_order = order,
                       .tree_unit = order == KOrder::kTree ? 32 : 0,
                       .isa = Isa::kAvx512},
                      {bytes, bytes + weights.size() * 2});
  for (int rows : {1, 2, 3, 4, 5, 7, 8, 11, 12, 16}) {
    ASSERT_TRUE(same_bits(run_tile(bf16_dot_tile, w, x, rows), run_tile(bf16_fma_tile, w, x, rows)))
        << rows << " rows of " << features;
  }
}

TEST(MatmulBf16, DotsAndFmaHaveTheSameBits) {
  if (tensor::detect_isa() != Isa::kAvx512) GTEST_SKIP() << "needs AVX-512 BF16";
  Random random(21);
  struct Range {
    unsigned low, exponents;
  };
  // Usual numbers; any that are finite; products and sums around the smallest normal number; subnormals; infinities.
  for (const Range range : {Range{120, 10}, Range{0, 255}, Range{60, 8}, Range{0, 130}, Range{0, 2}, Range{180, 75}}) {
    for (int64_t features : {32, 576, 1536, 2080}) {
      for (KOrder order : {KOrder::kSequential, KOrder::kTree}) {
        const auto weights = random_bf16(random, static_cast<size_t>(64 * features), range.low, range.exponents);
        const auto x = random_bf16(random, static_cast<size_t>(16 * features), range.low, range.exponents);
        expect_same(weights, x, features, order);
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::test
