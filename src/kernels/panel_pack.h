// One row of a weight matrix into its panel, at load. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace baton::kernels {

inline constexpr int64_t kAllBlocksGood = -1;

// bytes: a row of `features` inputs as the file has it. panel: where panel_offset says; row: 0 .. 15 in it.
// Returns the first block that stands for something that is not a finite number (its scale, a minimum, an e4m3 code),
// or kAllBlocksGood. It is packed all the same.
int64_t pack_panel_row(tensor::DType dtype, int64_t features, std::byte* panel, int row, const std::byte* bytes);

// The same of the 16 rows of a whole panel, row_bytes apart; bad: of each row. False, and nothing done, for formats and
// sizes that go row by row.
bool pack_whole_panel(tensor::DType dtype, int64_t features, std::byte* panel, const std::byte* first_row,
                      int64_t row_bytes, int64_t (&bad)[16]);

}  // namespace baton::kernels
