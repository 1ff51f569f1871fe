// A safetensors file before its data: the header's bytes, and where each tensor will lie. Lets writers fill a file in
// any order, from many threads, and from data that never lies whole in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace baton::weights {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct TensorDecl {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;  // outermost first
};

struct SafetensorsLayout {
  std::vector<std::byte> header;  // length and JSON text, a multiple of 8 bytes
  std::vector<int64_t> offsets;   // of each tensor, from the start of the file
  int64_t file_bytes = 0;
};

// The tensors in the order given, without gaps. kInvalidArgument for a name that repeats or isn't UTF-8, and for a
// dtype the format lacks.
Result<SafetensorsLayout> layout_safetensors(std::span<const TensorDecl> tensors,
                                             const SafetensorsMetadata& metadata = {});

}  // namespace baton::weights
