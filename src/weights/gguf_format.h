// The constants of the GGUF file format (versions 2 and 3), shared by its reader and its writer.
// Source: the GGUF specification, docs/gguf.md of ggml-org/ggml.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace baton::weights {

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF", little-endian
inline constexpr uint32_t kGgufVersion = 3;
inline constexpr uint32_t kGgufDefaultAlignment = 32;
inline constexpr int kGgufMaxDims = 4;

enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr uint32_t kGgufValueTypes = 13;

// The fewest bytes that one value of a type takes in a file: what a count is checked against before it is trusted.
uint64_t gguf_value_bytes_min(GgufValueType type);

// What a ggml type id stands for: a dtype of ours, a known name that this version doesn't read, or neither.
struct GgmlType {
  std::string_view name;  // "Q4_K"; empty if the id is unknown
  std::optional<tensor::DType> dtype;
};
GgmlType ggml_type(uint32_t id);
uint32_t ggml_type_id(tensor::DType dtype);

}  // namespace baton::weights
