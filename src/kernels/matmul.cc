// Cuts a product into tiles and threads, adds the leaves of the K tree, then the bias.
//
// A thread owns a contiguous range of panels. For each tile of panels it goes through all rows, so that the weights
// come from DRAM once and stay in L1/L2 while the rows (K bytes each for int8) stream past.
#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul_onednn.h"
#include "kernels/matmul_tile.h"

namespace baton::kernels {
namespace {

using tensor::DType;

constexpr int kLeaves = 16;
constexpr int kMaxTileFloats = kTileRows * 4 * 16;

TileFunction tile_function(const MatmulSpec& spec) {
  switch (spec.isa) {
    case tensor::Isa::kAvx512:
      return matmul_tile_avx512(spec.dtype);
    case tensor::Isa::kAvx2:
      return matmul_tile_avx2(spec.dtype);
    case tensor::Isa::kPortable:
      break;
  }
  return matmul_tile_ref(spec.dtype);
}

int64_t sequence_span(const MatmulSpec& spec) {
  return spec.dtype == DType::kBF16 ? bf16_span(spec.in_features) : spec.in_features;
}

// Where the leaves of K begin and end.
struct Leaves {
  std::array<int64_t, kLeaves + 1> border{};
};

Leaves leaves_of(const MatmulSpec& spec) {
  Leaves leaves;
  if (spec.k_order == KOrder::kSequential) return leaves;
  const int64_t units = spec.in_features / spec.tree_unit;
  for (int i = 0; i <= kLeaves; ++i) leaves.border[i] = units * i / kLeaves * spec.tree_unit;
  return leaves;
}

using LeafSums = std::array<std::array<float, kMaxTileFloats>, kLeaves>;

// Adds the leaves pairwise, level by level, empty ones skipped, into the first that is not empty; returns it.
const float* add_leaves(LeafSums& sums, std::array<bool, kLeaves> present, int floats) {
  std::array<int, kLeaves> at;  // where the sum of a subtree lies
  for (int i = 0; i < kLeaves; ++i) at[i] = i;
  for (int width = 1; width < kLeaves; width *= 2) {
    for (int i = 0; i < kLeaves; i += 2 * width) {
      const int right = i + width;
      if (!present[right]) continue;
      if (!present[i]) {
        at[i] = at[right];
        present[i] = true;
        continue;
      }
      float* left_sum = sums[at[i]].data();
      const float* right_sum = sums[at[right]].data();
      for (int f = 0; f < floats; ++f) left_sum[f] += right_sum[f];
    }
  }
  return sums[at[0]].data();
}

void sum_range(TileFunction function, MatmulTile& tile, int64_t k_begin, int64_t k_end, float* out) {
  tile.k_begin = k_begin;
  tile.k_end = k_end;
  tile.out = out;
  function(tile);
}

// Spans of K, each summed from zero, added in ascending order.
const float* sum_sequence(TileFunction function, MatmulTile& tile, int64_t span, LeafSums& sums) {
  sum_range(function, tile, 0, std::min(span, tile.features), sums[0].data());
  const int floats = tile.rows * tile.panel_count * 16;
  for (int64_t k = span; k < tile.features; k += span) {
    sum_range(function, tile, k, std::min(k + span, tile.features), sums[1].data());
    for (int f = 0; f < floats; ++f) sums[0][f] += sums[1][f];
  }
  return sums[0].data();
}

const float* sum_tree(TileFunction function, MatmulTile& tile, const Leaves& leaves, LeafSums& sums) {
  std::array<bool, kLeaves> present{};
  for (int i = 0; i < kLeaves; ++i) {
    present[i] = leaves.border[i] < leaves.border[i + 1];
    if (present[i]) sum_range(function, tile, leaves.border[i], leaves.border[i + 1], sums[i].data());
  }
  return add_leaves(sums, present, tile.rows * tile.panel_count * 16);
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

struct Product {
  const PackedMatrix& w;
  const ActivationBuffer& x;
  const float* bias;
  float* y;
  int64_t y_stride;
  Leaves leaves;
  TileFunction function;
};

void set_rows(const Product& p, MatmulTile& tile, int64_t row) {
  const int64_t features = p.x.features();
  tile.rows = static_cast<int>(std::min<int64_t>(kTileRows, p.x.rows() - row));
  tile.x = p.x.values() + row * p.x.row_stride_bytes();
  tile.x_scales = p.x.scales() + row * p.x.scales_per_row();
  tile.sums = p.x.group_sums() + row * (features / 32);
  tile.scaled_sums = p.x.scaled_sums() + row * (features / 32);
  tile.short_sums = p.x.short_sums() + row * (features / 256) * ActivationBuffer::kShortSums;
}

// Rows [row_begin, rows) of the panels [panel_begin, panel_end).
void multiply_panels(const Product& p, int64_t row_begin, int64_t panel_begin, int64_t panel_end) {
  const MatmulSpec& spec = p.w.spec();
  alignas(64) LeafSums sums;
  MatmulTile tile;
  tile.layout = &p.w.layout();
  tile.features = p.x.features();
  tile.x_stride = p.x.row_stride_bytes();
  const int64_t step = panels_per_tile(spec.dtype);
  for (int64_t panel = panel_begin; panel < panel_end; panel += step) {
    tile.panels = p.w.data() + panel_offset(p.w.layout(), spec.dtype, panel);
    tile.panel_count = static_cast<int>(std::min(step, p.w.layout().panels - panel));
    const int64_t column = panel * PackedMatrix::kPanelRows;
    const int64_t width = tile.panel_count * PackedMatrix::kPanelRows;
    const int64_t columns = std::min(width, spec.out_features - column);
    for (int64_t row = row_begin; row < p.x.rows(); row += kTileRows) {
      set_rows(p, tile, row);
      const float* sum = spec.k_order == KOrder::kTree ? sum_tree(p.function, tile, p.leaves, sums)
                                                       : sum_sequence(p.function, tile, sequence_span(spec), sums);
      store_columns(sum, width, p.bias == nullptr ? nullptr : p.bias + column, p.y + row * p.y_stride + column,
                    p.y_stride, tile.rows, columns);
    }
  }
}

// The blocks of kOnednnRows rows; returns the first row that is left. Panels are whole 64-column blocks.
int64_t multiply_with_onednn(const Product& p, int64_t panel_begin, int64_t panel_end) {
  const int64_t rows = p.x.rows() / kOnednnRows * kOnednnRows;
  if (rows == 0) return 0;
  const MatmulSpec& spec = p.w.spec();
  alignas(64) float c[kOnednnRows * kOnednnColumns];  // 64 KiB: dense, as oneDNN needs it
  const auto* a = reinterpret_cast<const uint16_t*>(p.x.values());
  const int64_t begin = panel_begin * PackedMatrix::kPanelRows;
  const int64_t end = panel_end * PackedMatrix::kPanelRows;
  for (int64_t column = begin; column < end; column += kOnednnColumns) {
    const int64_t padded = std::min(kOnednnColumns, end - column);
    const int64_t columns = std::min(padded, spec.out_features - column);
    const std::byte* block = p.w.data() + panel_offset(p.w.layout(), spec.dtype, column / PackedMatrix::kPanelRows);
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

void matmul(const PackedMatrix& w, const ActivationBuffer& x, const float* bias, float* y, int64_t y_stride,
            ComputePool& pool) {
  const MatmulSpec& spec = w.spec();
  BATON_CHECK(x.features() == spec.in_features, "{} inputs for a matrix of {}", x.features(), spec.in_features);
  BATON_CHECK(x.format() == activation_format(spec.dtype), "activations do not fit {}", tensor::dtype_name(spec.dtype));
  BATON_CHECK(y_stride >= spec.out_features, "y stride {} below {} outputs", y_stride, spec.out_features);
  const Product product{w, x, bias, y, y_stride, leaves_of(spec), tile_function(spec)};
  pool.parallel_for(w.layout().panels, panels_per_tile(spec.dtype), [&](int64_t begin, int64_t end) {
    const int64_t row = w.uses_onednn() ? multiply_with_onednn(product, begin, end) : 0;
    if (row < x.rows()) multiply_panels(product, row, begin, end);
  });
}

}  // namespace baton::kernels
