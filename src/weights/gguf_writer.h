// Writes GGUF version 3 files: metadata and tensors in the order given.
//
//   GgufWriter writer;
//   writer.set("general.architecture", "llama");
//   writer.set("llama.block_count", uint32_t{2});
//   writer.set_array("tokenizer.ggml.tokens", tokens);
//   writer.add_tensor({"token_embd.weight", DType::kF32, {vocab, hidden}, bytes});
//   BATON_TRY(writer.write("model.gguf"));
//
// One thread. Mistakes are remembered and come back from encode() or write().
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/byte_codec.h"
#include "base/status.h"
#include "weights/gguf_format.h"
#include "weights/tensor_source.h"

namespace baton::weights {

// The GGUF type that a C++ type is written as.
template <typename T>
consteval GgufValueType gguf_value_type() {
  if constexpr (std::is_same_v<T, bool>) return GgufValueType::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufValueType::kUint8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufValueType::kInt8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufValueType::kUint16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufValueType::kInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufValueType::kUint32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufValueType::kInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufValueType::kUint64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufValueType::kInt64;
  if constexpr (std::is_same_v<T, float>) return GgufValueType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return GgufValueType::kFloat64;
}

class GgufWriter {
 public:
  // A power of two; also written as general.alignment if it is not the default of 32.
  explicit GgufWriter(uint32_t alignment = kGgufDefaultAlignment);

  template <typename T>
    requires std::is_arithmetic_v<T>
  void set(std::string_view key, T value) {
    begin_pair(key, gguf_value_type<T>());
    pairs_.put(value);
  }
  void set(std::string_view key, std::string_view text);
  void set(std::string_view key, const char* text) { set(key, std::string_view(text)); }

  template <typename T>
    requires std::is_arithmetic_v<T>
  void set_array(std::string_view key, const std::vector<T>& values) {
    begin_array(key, gguf_value_type<T>(), values.size());
    for (const T value : values) pairs_.put(value);
  }
  void set_array(std::string_view key, std::span<const std::string> texts);

  // The data is read when the file is written, not before.
  void add_tensor(TensorSource tensor);

  // kInvalidArgument for a repeated key or name, a shape that is empty, has a zero or more than 4 dimensions, or data
  // whose size isn't the shape's.
  Result<std::vector<std::byte>> encode() const;
  Result<void> write(const std::string& path) const;

 private:
  void begin_pair(std::string_view key, GgufValueType type);
  void begin_array(std::string_view key, GgufValueType type, uint64_t count);
  void put_text(ByteWriter& out, std::string_view text) const;
  Result<std::vector<std::byte>> encode_header() const;
  size_t padding(size_t bytes) const { return (alignment_ - bytes % alignment_) % alignment_; }
  void refuse(std::string message);

  uint32_t alignment_;
  ByteWriter pairs_;
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
  std::vector<TensorSource> tensors_;
  std::optional<Status> mistake_;  // the first one
};

}  // namespace baton::weights
