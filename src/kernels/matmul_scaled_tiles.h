// Tiles that stand in files of their own: formats of e4m3 codes, formats with one scale per output, and bf16 of
// AVX-512.
#pragma once

#include "kernels/matmul_tile.h"

namespace baton::kernels {

// dtype: is_fp8.
TileFunction fp8_tile_avx2(tensor::DType dtype);
TileFunction fp8_tile_avx512(tensor::DType dtype);
// dtype: is_channel.
TileFunction channel_tile_avx2(tensor::DType dtype);
TileFunction channel_tile_avx512(tensor::DType dtype);

// The faster of the two below on this machine; both have the same bits.
TileFunction bf16_tile_avx512();
void bf16_dot_tile(const MatmulTile& tile);
void bf16_fma_tile(const MatmulTile& tile);
// Whether that is the latter: measured at the first call, in some tens of microseconds.
bool bf16_fma_pays();

}  // namespace baton::kernels
