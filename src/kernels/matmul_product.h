// One product of a matrix and some rows, by panels: what matmul, matmul_groups and matmul_heads cut over the threads.
#pragma once

#include <cstdint>

#include "kernels/matmul.h"

namespace baton::kernels {

struct MatmulProduct {
  const PackedMatrix* w = nullptr;
  const ActivationBuffer* x = nullptr;
  int64_t row_begin = 0, row_count = 0;  // of x
  const float* bias = nullptr;           // [N] or null
  float* y = nullptr;                    // the first row's outputs
  int64_t y_stride = 0;
};

// Aborts where the caller mixed up shapes or formats.
void check_product(const MatmulProduct& product);

// The outputs of panels [panel_begin, panel_end). panel_begin: a multiple of panels_per_tile.
void multiply_panels(const MatmulProduct& product, int64_t panel_begin, int64_t panel_end);

}  // namespace baton::kernels
