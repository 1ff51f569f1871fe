// The folder that a quantised checkpoint is written to, over as many calls as it takes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/quantize/quantize_checkpoint.h"
#include "weights/shard_file.h"

namespace baton::weights {

// What the output is a function of: the input's files with sizes and times, its configuration, the options.
nlohmann::json quantize_identity(const Checkpoint& checkpoint, const QuantizeOptions& options);

class OutputFolder {
 public:
  // Makes the folder, or takes up one that an earlier call of the same identity left. kAlreadyExists for any other that
  // holds a model; kResourceExhausted if the disk hasn't `bytes` free, less what stands.
  static Result<OutputFolder> open(const std::string& path, const nlohmann::json& identity, int64_t bytes);

  std::string file(std::string_view name) const;
  // Whether this shard was written whole before.
  Result<bool> stands(const Shard& shard) const;
  // Every plain file of the input but weights, indices and config.json: tokenizer, templates, licence.
  Result<void> copy_others(const std::string& input) const;
  // The work is done: the note of what it was goes.
  Result<void> finish() const;

 private:
  explicit OutputFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace baton::weights
