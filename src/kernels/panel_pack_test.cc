// A panel that is packed at once holds the bytes, and names the bad blocks, of one that is packed row by row. Matrices
// of an arena share memory, never bytes.
#include "kernels/panel_pack.h"

#include <algorithm>
#include <iterator>

#include "kernels/matmul_test_data.h"
#include "kernels/weight_arena.h"

namespace baton::kernels::test {
namespace {

struct Packed {
  std::vector<std::byte> panels;
  std::vector<int64_t> bad;  // of each row
};

// All panels of a matrix of 64 rows.
Packed pack_rows_apart(DType dtype, int64_t features, const std::vector<std::byte>& rows, bool& whole) {
  const PanelLayout layout = panel_layout(dtype, 64, features);
  const int64_t row_bytes = tensor::dtype_bytes(dtype, features);
  Packed packed{.panels = std::vector<std::byte>(static_cast<size_t>(layout.panels * layout.panel_bytes))};
  for (int64_t panel = 0; panel < 4; ++panel) {
    std::byte* to = packed.panels.data() + panel_offset(layout, dtype, panel);
    const std::byte* from = rows.data() + panel * 16 * row_bytes;
    int64_t bad[16];
    if (whole && pack_whole_panel(dtype, features, to, from, row_bytes, bad)) {
      packed.bad.insert(packed.bad.end(), std::begin(bad), std::end(bad));
      continue;
    }
    whole = false;
    for (int row = 0; row < 16; ++row) {
      packed.bad.push_back(pack_panel_row(dtype, features, to, row, from + row * row_bytes));
    }
  }
  return packed;
}

// Whether the format and size go by whole panels.
bool expect_equal(DType dtype, int64_t features, const std::vector<std::byte>& rows) {
  bool by_row = false, whole = true;
  const Packed expected = pack_rows_apart(dtype, features, rows, by_row);
  const Packed at_once = pack_rows_apart(dtype, features, rows, whole);
  EXPECT_EQ(at_once.panels, expected.panels) << tensor::dtype_name(dtype) << " " << features;
  EXPECT_EQ(at_once.bad, expected.bad) << tensor::dtype_name(dtype) << " " << features;
  return whole;
}

TEST(PanelPack, AWholePanelHasTheBytesOfItsRows) {
  Random random(31);
  for (DType dtype : all_types()) {
    int whole = 0;
    const int64_t step = tensor::dtype_info(dtype).block_elements;
    for (int64_t features : {step, 3 * step, 8 * std::max<int64_t>(step, 4), 128 * std::max<int64_t>(step, 2) + step}) {
      if (tensor::dtype_bytes(dtype, features) == 0 || (dtype == DType::kInt4Channel && features % 2 != 0)) continue;
      whole += expect_equal(dtype, features, random_weights(random, dtype, 64 * features)) ? 1 : 0;
    }
    const auto& by_row = quantized_types();
    const bool row_by_row = std::ranges::find(by_row, dtype) != by_row.end() || dtype == DType::kF16;
    EXPECT_EQ(whole > 0, !row_by_row) << tensor::dtype_name(dtype);
  }
}

TEST(PanelPack, AWholePanelNamesTheFirstBadBlockOfEachRow) {
  Random random(32);
  for (DType dtype : {DType::kMxfp4, DType::kInt4Group32, DType::kFp8Block, DType::kMxfp8}) {
    const auto& info = tensor::dtype_info(dtype);
    const int64_t features = 6 * info.block_elements, row_bytes = tensor::dtype_bytes(dtype, features);
    auto rows = random_weights(random, dtype, 64 * features);
    const auto spoil = [&](int64_t row, int64_t block) {  // a scale that is no number
      std::byte* at = rows.data() + row * row_bytes + block * info.block_bytes;
      std::fill_n(at, dtype == DType::kFp8Block ? 4 : dtype == DType::kInt4Group32 ? 2 : 1, std::byte{0xff});
    };
    spoil(3, 5);
    spoil(17, 4);
    spoil(17, 1);
    rows[static_cast<size_t>(64 * row_bytes - 1)] = std::byte{0x7f};  // of e4m3: not a number
    EXPECT_TRUE(expect_equal(dtype, features, rows)) << tensor::dtype_name(dtype);
    bool whole = true;
    const Packed packed = pack_rows_apart(dtype, features, rows, whole);
    EXPECT_EQ(packed.bad[3], 5);
    EXPECT_EQ(packed.bad[17], 1);
    EXPECT_EQ(packed.bad[63] == 5, dtype == DType::kFp8Block || dtype == DType::kMxfp8);
  }
}

TEST(WeightArena, PiecesDoNotOverlapAndOutliveTheArena) {
  std::vector<WeightArena::Piece> pieces;
  const int64_t sizes[] = {64,
                           100,
                           1 << 20,
                           WeightArena::kAloneBytes - 1,
                           WeightArena::kAloneBytes,
                           40 << 20,
                           64,
                           WeightArena::kAloneBytes - 64};
  {
    WeightArena arena;
    for (int round = 0; round < 3; ++round) {
      for (int64_t bytes : sizes) {
        auto piece = arena.take(bytes);
        ASSERT_TRUE(piece.has_value());
        ASSERT_EQ(reinterpret_cast<uintptr_t>(piece->data) % 64, 0u);
        pieces.push_back(std::move(*piece));
      }
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto bytes = static_cast<size_t>(sizes[i % std::size(sizes)]);
    ASSERT_TRUE(std::all_of(pieces[i].data, pieces[i].data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(pieces[i].data, static_cast<int>(i + 1), bytes);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto bytes = static_cast<size_t>(sizes[i % std::size(sizes)]);
    const auto mark = static_cast<std::byte>(i + 1);
    EXPECT_TRUE(std::all_of(pieces[i].data, pieces[i].data + bytes, [&](std::byte b) { return b == mark; })) << i;
  }
}

}  // namespace
}  // namespace baton::kernels::test
