// The inner products of one tile: a few rows of x and a few panels of W over all of K. Each instruction set has one
// function per format; matmul.cc cuts the product into tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panel_layout.h"
#include "tensor/cpu.h"
#include "tensor/dtype.h"

namespace baton::kernels {

// Rows that all kernels work on at once.
inline constexpr int kTileRows = 4;
// Rows of a tile: more where it pays to make codes into numbers once for many rows.
inline constexpr int kMaxTileRows = 64;
constexpr int rows_per_tile(tensor::DType dtype) {
  if (is_fp8(dtype)) return kMaxTileRows;
  return dtype == tensor::DType::kBF16 ? 16 : kTileRows;
}

// bf16 in sequence: inputs that are summed from zero before they are added to the sum of those before. oneDNN's bf16
// kernel cuts K so (found by trial over K from 32 to 28672), and must be matched bit for bit.
constexpr int64_t bf16_span(int64_t in_features) { return in_features > 1024 ? 1024 : 512; }

struct MatmulTile {
  const PanelLayout* layout = nullptr;
  const std::byte* panels = nullptr;  // first panel; the next is layout->panel_bytes on (interleaved: 64)
  int panel_count = 0;                // 1 .. panels_per_tile(dtype); interleaved: always 4
  int rows = 0;                       // 1 .. rows_per_tile(dtype)
  const std::byte* x = nullptr;       // the tile's first row, in its activation format
  int64_t x_stride = 0;               // bytes
  // Of the tile's first row; strides follow from `features`. See ActivationBuffer.
  const float* x_scales = nullptr;
  const int32_t* sums = nullptr;
  const float* scaled_sums = nullptr;
  const int16_t* short_sums = nullptr;
  // Channel formats: of the tile's first panel, 16 a panel; quant_bias is null but for int8_static.
  const float* channel_scales = nullptr;
  const int32_t* quant_bias = nullptr;
  int64_t features = 0;                // K
  const KSegment* segments = nullptr;  // at least one; they leave one sum
  int segment_count = 0;
  float* out = nullptr;  // [rows][panel_count * 16], 64-byte aligned
};

using TileFunction = void (*)(const MatmulTile&);
TileFunction matmul_tile_ref(tensor::DType dtype);
TileFunction matmul_tile_avx2(tensor::DType dtype);
TileFunction matmul_tile_avx512(tensor::DType dtype);

}  // namespace baton::kernels
