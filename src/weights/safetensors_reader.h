// The header of one safetensors file, read from bytes: tensors with checked places.
//
// Pure: no file, no thread, no state. Rules of the format (huggingface/safetensors, README "Format"): 8 bytes of header
// length, a JSON object, then data that the tensors cover wholly: none overlaps, none lies outside, nothing is left
// over.
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

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the format's own limit
inline constexpr size_t kSafetensorsDimsMax = 16;

struct SafetensorsTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;  // [] is a scalar; a dimension may be 0
  int64_t file_offset = 0;     // from the start of the file; of any alignment
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // by name
  nlohmann::json metadata;                 // "__metadata__": an object of strings, perhaps empty
};

// `file` is the whole file; `name` goes before every message. kDataLoss for bytes that can't be right, kUnimplemented
// for dtypes of the format that aren't read yet.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view name);

// The format's name of a dtype ("BF16"); empty if the format has none for it.
std::string_view safetensors_dtype(tensor::DType dtype);

}  // namespace baton::weights
