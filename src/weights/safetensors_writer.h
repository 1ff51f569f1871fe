// Writes safetensors files from tensors in memory: in the order given, without gaps, the data section 8-byte aligned.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/safetensors_layout.h"
#include "weights/tensor_source.h"

namespace baton::weights {

// kInvalidArgument for a name that repeats or isn't UTF-8, a dtype the format lacks, or data whose size isn't the
// shape's.
Result<std::vector<std::byte>> encode_safetensors(std::span<const TensorSource> tensors,
                                                  const SafetensorsMetadata& metadata = {});
Result<void> write_safetensors(const std::string& path, std::span<const TensorSource> tensors,
                               const SafetensorsMetadata& metadata = {});

}  // namespace baton::weights
