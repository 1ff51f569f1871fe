// A checkpoint on disk: its configuration and its tensors, mapped. GGUF files and Hugging Face folders look the same.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace baton::weights {

// One tensor in a mapped file. Row-major, shape as [out, in] (GGUF's reversed dimensions are turned).
struct TensorEntry {
  std::string name;
  // kMxfp4 stands in GGUF files alone, with ggml's order of codes (matrix_source.h).
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  // GGUF: aligned as the file says (32 by default). safetensors: of any alignment, so read it with memcpy.
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int file_index = 0;
  int64_t file_offset = 0;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  enum class Format : uint8_t { kGguf, kHuggingFace };
  virtual Format format() const = 0;
  virtual const std::string& path() const = 0;
  virtual const std::map<std::string, TensorEntry>& tensors() const = 0;
  // GGUF: all metadata as {"llama.block_count": 30, ...} (arrays of tokens included). HF: config.json.
  virtual const nlohmann::json& config() const = 0;
  // HF: generation_config.json, tokenizer_config.json; GGUF: empty objects.
  virtual const nlohmann::json& generation_config() const = 0;
  virtual const nlohmann::json& tokenizer_config() const = 0;
  // The file that a tensor is in, for messages.
  virtual const std::string& file_path(const TensorEntry& tensor) const = 0;
  // The pages of a tensor that has been packed may go.
  virtual void release(const TensorEntry& tensor) const = 0;
};

// A .gguf file (or the first of its split files), or a folder with config.json and *.safetensors (index respected).
// Every size and offset is checked against the file before use: kDataLoss names the tensor and the bytes.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path);

}  // namespace baton::weights
