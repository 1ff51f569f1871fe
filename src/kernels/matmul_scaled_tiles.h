// Tiles that stand in files of their own: formats of e4m3 codes, formats with one scale per output, many rows of 4-bit
// codes.
#pragma once

#include "kernels/matmul_tile.h"

namespace baton::kernels {

// dtype: is_fp8.
TileFunction fp8_tile_avx2(tensor::DType dtype);
TileFunction fp8_tile_avx512(tensor::DType dtype);
// dtype: is_channel.
TileFunction channel_tile_avx2(tensor::DType dtype);
TileFunction channel_tile_avx512(tensor::DType dtype);
// dtype: is_nibble_group32. Tiles of two panels and at least kWideRows rows.
TileFunction wide_group32_tile_avx512(tensor::DType dtype);

}  // namespace baton::kernels
