// Tiles that stand in files of their own: formats of e4m3 codes, and formats with one scale per output.
#pragma once

#include "kernels/matmul_tile.h"

namespace baton::kernels {

// dtype: is_fp8.
TileFunction fp8_tile_avx2(tensor::DType dtype);
TileFunction fp8_tile_avx512(tensor::DType dtype);
// dtype: is_channel.
TileFunction channel_tile_avx2(tensor::DType dtype);
TileFunction channel_tile_avx512(tensor::DType dtype);

}  // namespace baton::kernels
