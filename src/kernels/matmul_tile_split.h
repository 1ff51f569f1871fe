// Cuts a tile into register blocks whose sizes are template constants. Kernel has `template <int R, int P> static void
// run(const MatmulTile&, int row, int panel)` that computes R rows from `row` and P panels from `panel`.
#pragma once

#include "kernels/matmul_tile.h"

namespace baton::kernels {

template <typename Kernel, int R, int kMaxPanels>
inline void run_row_block(const MatmulTile& t, int row) {
  int panel = 0;
  if constexpr (kMaxPanels >= 4) {
    for (; panel + 4 <= t.panel_count; panel += 4) Kernel::template run<R, 4>(t, row, panel);
  }
  if constexpr (kMaxPanels >= 2) {
    for (; panel + 2 <= t.panel_count; panel += 2) Kernel::template run<R, 2>(t, row, panel);
  }
  for (; panel < t.panel_count; ++panel) Kernel::template run<R, 1>(t, row, panel);
}

// kMaxRows: 2 or 4. kMaxPanels: register blocks of several rows; kMaxPanelsOneRow: of one row.
template <typename Kernel, int kMaxRows, int kMaxPanels, int kMaxPanelsOneRow>
void run_tile(const MatmulTile& t) {
  int row = 0;
  if constexpr (kMaxRows >= 4) {
    for (; row + 4 <= t.rows; row += 4) run_row_block<Kernel, 4, kMaxPanels>(t, row);
  }
  for (; row + 2 <= t.rows; row += 2) run_row_block<Kernel, 2, kMaxPanels>(t, row);
  for (; row < t.rows; ++row) run_row_block<Kernel, 1, kMaxPanelsOneRow>(t, row);
}

}  // namespace baton::kernels
