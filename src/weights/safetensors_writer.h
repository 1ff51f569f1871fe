// Writes safetensors files: the tensors in the order given, without gaps, the data section 8-byte aligned.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/tensor_source.h"

namespace baton::weights {

using SafetensorsMetadata = std::map<std::string, std::string>;

// kInvalidArgument for a name that repeats or isn't UTF-8, a dtype the format lacks, or data whose size isn't the
// shape's.
Result<std::vector<std::byte>> encode_safetensors(std::span<const TensorSource> tensors,
                                                  const SafetensorsMetadata& metadata = {});
Result<void> write_safetensors(const std::string& path, std::span<const TensorSource> tensors,
                               const SafetensorsMetadata& metadata = {});

}  // namespace baton::weights
