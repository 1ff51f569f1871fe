// What the writers take: a tensor's name, format, shape and its bytes, row-major, as the file will hold them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace baton::weights {

struct TensorSource {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;       // outermost first: [out, in]
  std::span<const std::byte> data;  // must outlive the writer's call
};

}  // namespace baton::weights
