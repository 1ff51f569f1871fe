#include "weights/tensor_layout.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace baton::weights {

Result<int64_t> tensor_bytes(tensor::DType dtype, std::span<const int64_t> shape) {
  const auto& info = tensor::dtype_info(dtype);
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) {
      return fail(Code::kDataLoss, "shape {} overflows", shape_text(shape));
    }
  }
  const int64_t inner = shape.empty() ? 1 : shape.back();
  if (inner % info.block_elements != 0) {
    return fail(Code::kDataLoss, "shape {} has rows of {}, not a multiple of {}'s block of {}", shape_text(shape),
                inner, info.name, info.block_elements);
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / info.block_elements, static_cast<int64_t>(info.block_bytes), &bytes)) {
    return fail(Code::kDataLoss, "shape {} overflows", shape_text(shape));
  }
  return bytes;
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Result<void> check_disjoint(std::vector<ByteRange> ranges, std::string_view file) {
  std::erase_if(ranges, [](const ByteRange& range) { return range.bytes == 0; });
  std::ranges::sort(ranges, {}, [](const ByteRange& range) { return range.offset; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    const auto& before = ranges[i - 1];
    const auto& range = ranges[i];
    if (range.offset < before.offset + before.bytes) {
      return fail(Code::kDataLoss, "{}: tensors {} (bytes {} to {}) and {} (bytes {} to {}) overlap", file, before.name,
                  before.offset, before.offset + before.bytes, range.name, range.offset, range.offset + range.bytes);
    }
  }
  return {};
}

}  // namespace baton::weights
