// Where tensors lie in a file: sizes that can't overflow, ranges that can't overlap. Shared by readers and writers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace baton::weights {

// Bytes of a tensor. kDataLoss if a dimension is negative, if elements or bytes overflow 63 bits, or if the innermost
// dimension is not a multiple of the format's block. A zero dimension gives zero bytes; no dimension is a scalar.
Result<int64_t> tensor_bytes(tensor::DType dtype, std::span<const int64_t> shape);

// "[576, 1536]"
std::string shape_text(std::span<const int64_t> shape);

struct ByteRange {
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string_view name;
};
// kDataLoss naming two tensors and their bytes if any two ranges share a byte.
Result<void> check_disjoint(std::vector<ByteRange> ranges, std::string_view file);

}  // namespace baton::weights
