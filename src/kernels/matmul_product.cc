// Cuts a product into tiles; adds the bias. For each tile of panels it goes through all rows, so that the weights come
// from DRAM once and stay in L1/L2 while the rows (K bytes each for int8) stream past.
#include "kernels/matmul_product.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul_onednn.h"
#include "kernels/matmul_tile.h"

namespace baton::kernels {
namespace {

constexpr int kMaxTilePanels = 4;

TileFunction tile_function(const MatmulSpec& spec) {
  TileFunction function = nullptr;
  if (spec.isa == tensor::Isa::kAvx512) function = matmul_tile_avx512(spec.dtype);
  if (spec.isa == tensor::Isa::kAvx2) function = matmul_tile_avx2(spec.dtype);
  return function != nullptr ? function : matmul_tile_ref(spec.dtype);
}

// sums: [rows, stride]; y points at the first row and column.
void store_columns(const float* sums, int64_t stride, const float* bias, float* y, int64_t y_stride, int64_t rows,
                   int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = sums + r * stride;
    float* to = y + r * y_stride;
    if (bias == nullptr) {
      std::memcpy(to, from, static_cast<size_t>(columns) * 4);
    } else {
      for (int64_t n = 0; n < columns; ++n) to[n] = from[n] + bias[n];
    }
  }
}

// row: of the product's rows.
void set_rows(const MatmulProduct& p, MatmulTile& tile, int64_t row) {
  const ActivationBuffer& x = *p.x;
  const int64_t features = x.features();
  const int64_t at = p.row_begin + row;
  tile.rows = static_cast<int>(std::min<int64_t>(kTileRows, p.row_count - row));
  tile.x = x.values() + at * x.row_stride_bytes();
  tile.x_scales = x.scales() + at * x.scales_per_row();
  tile.sums = x.group_sums() + at * x.sums_per_row();
  tile.scaled_sums = x.scaled_sums() + at * (features / 32);
  tile.short_sums = x.short_sums() + at * (features / 256) * ActivationBuffer::kShortSums;
}

void set_panels(const PackedMatrix& w, MatmulTile& tile, int64_t panel) {
  const tensor::DType dtype = w.spec().dtype;
  const int64_t column = panel * PackedMatrix::kPanelRows;
  tile.panels = w.data() + panel_offset(w.layout(), dtype, panel);
  tile.panel_count = static_cast<int>(std::min<int64_t>(panels_per_tile(dtype), w.layout().panels - panel));
  if (is_channel(dtype)) tile.channel_scales = w.channel_scales() + column;
  if (w.quant_bias() != nullptr) tile.quant_bias = w.quant_bias() + column;
}

// Rows from `row_begin` of the product's.
void multiply_with_tiles(const MatmulProduct& p, int64_t row_begin, int64_t panel_begin, int64_t panel_end) {
  const MatmulSpec& spec = p.w->spec();
  const TileFunction function = tile_function(spec);
  alignas(64) float sums[kTileRows * kMaxTilePanels * PackedMatrix::kPanelRows];
  MatmulTile tile;
  tile.layout = &p.w->layout();
  tile.features = spec.in_features;
  tile.x_stride = p.x->row_stride_bytes();
  tile.segments = p.w->segments().data();
  tile.segment_count = static_cast<int>(p.w->segments().size());
  tile.out = sums;
  for (int64_t panel = panel_begin; panel < panel_end; panel += panels_per_tile(spec.dtype)) {
    set_panels(*p.w, tile, panel);
    const int64_t column = panel * PackedMatrix::kPanelRows;
    const int64_t width = tile.panel_count * PackedMatrix::kPanelRows;
    const int64_t columns = std::min(width, spec.out_features - column);
    for (int64_t row = row_begin; row < p.row_count; row += kTileRows) {
      set_rows(p, tile, row);
      function(tile);
      store_columns(sums, width, p.bias == nullptr ? nullptr : p.bias + column, p.y + row * p.y_stride + column,
                    p.y_stride, tile.rows, columns);
    }
  }
}

// The blocks of kOnednnRows rows; returns the first row that is left. Panels are whole 64-column blocks.
int64_t multiply_with_onednn(const MatmulProduct& p, int64_t panel_begin, int64_t panel_end) {
  const int64_t rows = p.row_count / kOnednnRows * kOnednnRows;
  if (rows == 0) return 0;
  const MatmulSpec& spec = p.w->spec();
  alignas(64) float c[kOnednnRows * kOnednnColumns];  // 64 KiB: dense, as oneDNN needs it
  const auto* a = reinterpret_cast<const uint16_t*>(p.x->values() + p.row_begin * p.x->row_stride_bytes());
  const int64_t begin = panel_begin * PackedMatrix::kPanelRows;
  const int64_t end = panel_end * PackedMatrix::kPanelRows;
  for (int64_t column = begin; column < end; column += kOnednnColumns) {
    const int64_t padded = std::min(kOnednnColumns, end - column);
    const int64_t columns = std::min(padded, spec.out_features - column);
    const std::byte* block = p.w->data() + panel_offset(p.w->layout(), spec.dtype, column / PackedMatrix::kPanelRows);
    for (int64_t row = 0; row < rows; row += kOnednnRows) {
      // A refusal after the first call would be one for all: the shape is the same.
      if (!onednn_multiply(a + row * spec.in_features, block, spec.in_features, padded, c)) return 0;
      store_columns(c, padded, p.bias == nullptr ? nullptr : p.bias + column, p.y + row * p.y_stride + column,
                    p.y_stride, kOnednnRows, columns);
    }
  }
  return rows;
}

}  // namespace

void check_product(const MatmulProduct& p) {
  const MatmulSpec& spec = p.w->spec();
  BATON_CHECK(p.x->features() == spec.in_features, "{} inputs for a matrix of {}", p.x->features(), spec.in_features);
  BATON_CHECK(p.x->format() == activation_format(spec.dtype), "activations do not fit {}",
              tensor::dtype_name(spec.dtype));
  BATON_CHECK(p.x->static_quant() == p.w->static_quant(), "activations quantised for another {} matrix",
              tensor::dtype_name(spec.dtype));
  BATON_CHECK(p.y_stride >= spec.out_features, "y stride {} below {} outputs", p.y_stride, spec.out_features);
  BATON_CHECK(p.row_begin >= 0 && p.row_count >= 0 && p.row_begin + p.row_count <= p.x->rows(), "rows {} + {} of {}",
              p.row_begin, p.row_count, p.x->rows());
}

void multiply_panels(const MatmulProduct& p, int64_t panel_begin, int64_t panel_end) {
  const int64_t row = p.w->uses_onednn() ? multiply_with_onednn(p, panel_begin, panel_end) : 0;
  if (row < p.row_count) multiply_with_tiles(p, row, panel_begin, panel_end);
}

}  // namespace baton::kernels
