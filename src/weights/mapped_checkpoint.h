// The one implementation of Checkpoint: mapped files, a table of tensors into them, and three JSON objects. The openers
// (gguf_checkpoint.cc, huggingface_checkpoint.cc) fill it; afterwards it never changes and any thread may read it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace baton::weights {

struct CheckpointParts {
  Checkpoint::Format format = Checkpoint::Format::kGguf;
  std::string path;
  std::vector<tensor::MappedFile> files;
  std::vector<std::string> file_paths;  // of the files, in the same order
  std::map<std::string, TensorEntry> tensors;
  nlohmann::json config = nlohmann::json::object();
  nlohmann::json generation_config = nlohmann::json::object();
  nlohmann::json tokenizer_config = nlohmann::json::object();
};

class MappedCheckpoint final : public Checkpoint {
 public:
  explicit MappedCheckpoint(CheckpointParts parts) : parts_(std::move(parts)) {}
  Format format() const override { return parts_.format; }
  const std::string& path() const override { return parts_.path; }
  const std::map<std::string, TensorEntry>& tensors() const override { return parts_.tensors; }
  const nlohmann::json& config() const override { return parts_.config; }
  const nlohmann::json& generation_config() const override { return parts_.generation_config; }
  const nlohmann::json& tokenizer_config() const override { return parts_.tokenizer_config; }
  const std::string& file_path(const TensorEntry& tensor) const override {
    return parts_.file_paths[static_cast<size_t>(tensor.file_index)];
  }
  void release(const TensorEntry& tensor) const override {
    parts_.files[static_cast<size_t>(tensor.file_index)].release(static_cast<size_t>(tensor.file_offset),
                                                                 static_cast<size_t>(tensor.bytes));
  }

 private:
  CheckpointParts parts_;
};

// Maps a regular file; anything else (a FIFO would block the open) is an error.
Result<tensor::MappedFile> map_regular_file(const std::string& path);

Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path);
Result<std::unique_ptr<Checkpoint>> open_huggingface_checkpoint(const std::string& folder);

}  // namespace baton::weights
