// One safetensors file that many threads fill at once, and a model's tensors split over several such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/safetensors_layout.h"

namespace baton::weights {

// The file is PATH.part until commit(), which makes it durable and gives it its name. Without commit() the destructor
// removes it.
class ShardFile {
 public:
  // Writes the header and takes the file's full size. kResourceExhausted if the disk hasn't room for it.
  static Result<ShardFile> create(std::string path, std::span<const std::byte> header, int64_t file_bytes);
  ~ShardFile();
  ShardFile(ShardFile&& other) noexcept;
  ShardFile& operator=(ShardFile&&) = delete;
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  // Any thread, disjoint ranges.
  Result<void> write_at(int64_t offset, std::span<const std::byte> bytes) const;
  Result<void> commit();

 private:
  ShardFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  std::string part_path() const { return path_ + ".part"; }

  int descriptor_ = -1;
  std::string path_;
};

struct Shard {
  std::string file_name;      // "model-00001-of-00003.safetensors"; "model.safetensors" if there is one
  size_t begin = 0, end = 0;  // of the tensors
  SafetensorsLayout layout;
};
// Tensors in order, a new file before the one that would pass `shard_bytes` of data. keep_together: indices of tensors
// that begin a group which stays in one file, ascending; empty: each by itself.
Result<std::vector<Shard>> split_into_shards(std::span<const TensorDecl> tensors, int64_t shard_bytes,
                                             std::span<const size_t> keep_together = {});

// The text of model.safetensors.index.json.
std::string shard_index_json(std::span<const TensorDecl> tensors, std::span<const Shard> shards);
inline constexpr const char* kShardIndexName = "model.safetensors.index.json";

}  // namespace baton::weights
