// oneDNN for many rows of bf16: the same bits as our own kernel, a little faster. The only file that knows oneDNN.
//
// oneDNN 2.6.3 is used with dense A, dense C and a fixed number of rows per primitive (a wider destination or a
// run-time size takes another kernel with other bits), over weights in its layout BA16a64b2a, which our own kernel
// reads too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/matmul.h"

namespace baton::kernels {

// Whether oneDNN serves this op: bf16, in sequence, and on this machine its primitives are brg:avx512_core_bf16 (AMX
// has other rounding) and a trial product of this K has the bits of our own kernel.
bool onednn_can_serve(const MatmulSpec& spec);

// "2.6.3": the library that is loaded, for the numeric profile.
std::string onednn_version();

// Rows of one call; others go through our own kernel.
inline constexpr int64_t kOnednnRows = 64;
// Columns of one call: 64-row blocks of W times this.
inline constexpr int64_t kOnednnColumns = 256;

// c[64, columns] = a[64, K] b^T for the `columns` rows of W that start at `block` (bytes of a 64-row block). columns is
// a multiple of 64, at most kOnednnColumns. False if oneDNN refuses: the caller then uses our own kernel. Keeps
// primitives per thread; a thread's first call sets its OpenMP thread count to one.
bool onednn_multiply(const uint16_t* a, const std::byte* block, int64_t in_features, int64_t columns, float* c);

}  // namespace baton::kernels
