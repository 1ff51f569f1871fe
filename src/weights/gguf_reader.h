// The header of one GGUF file (versions 2 and 3), read from bytes: metadata as JSON, tensors with checked places.
//
// Pure: no file, no thread, no state. Nothing in the bytes is trusted: a count or length is compared with what remains
// of the file before anything is reserved for it, nesting and totals are bounded, and every tensor lies inside the
// file, aligned, without overlapping another.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace baton::weights {

// Bounds on what a header may make the process hold. Real files stay far below: 16 MB, 1M elements, 4 levels.
inline constexpr uint64_t kGgufHeaderBytesMax = uint64_t{256} << 20;
inline constexpr uint64_t kGgufArrayElementsMax = uint64_t{8} << 20;  // of all arrays together
inline constexpr int kGgufArrayDepthMax = 8;
inline constexpr uint64_t kGgufPairsMax = 65536;
inline constexpr uint64_t kGgufTensorsMax = uint64_t{1} << 20;
inline constexpr uint64_t kGgufKeyBytesMax = 65535;
inline constexpr uint64_t kGgufTensorNameBytesMax = 1024;

struct GgufTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;  // outermost first: [out, in]
  int64_t file_offset = 0;     // from the start of the file
  int64_t bytes = 0;
};

struct GgufHeader {
  uint32_t version = 0;
  uint32_t alignment = 0;
  int64_t data_offset = 0;          // where the tensors' section begins
  nlohmann::json metadata;          // an object; strings hold the file's bytes, which need not be UTF-8
  std::vector<GgufTensor> tensors;  // in the file's order
};

// `file` is the whole file; `name` goes before every message. kDataLoss for bytes that can't be right,
// kInvalidArgument for a file that isn't GGUF, kUnimplemented for versions and tensor types that aren't read yet,
// kOutOfRange past the bounds above.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view name);

}  // namespace baton::weights
