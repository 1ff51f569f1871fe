#include "weights/shard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "weights/tensor_layout.h"

namespace baton::weights {
namespace {

// Makes a rename durable, as far as the file system goes along: a name that is lost costs its shard's work, no more.
void sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

Result<ShardFile> ShardFile::create(std::string path, std::span<const std::byte> header, int64_t file_bytes) {
  const std::string part = path + ".part";
  const int descriptor = ::open(part.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
  if (descriptor < 0) return fail(Code::kNotFound, "can't create {}: {}", part, std::strerror(errno));
  ShardFile file(descriptor, std::move(path));
  const int refused = file_bytes > 0 ? ::posix_fallocate(descriptor, 0, file_bytes) : 0;
  if (refused != 0) {
    return fail(Code::kResourceExhausted, "can't reserve {} bytes for {}: {}", file_bytes, file.path_,
                std::strerror(refused));
  }
  BATON_TRY(file.write_at(0, header));
  return file;
}

ShardFile::ShardFile(ShardFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

ShardFile::~ShardFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  std::remove(part_path().c_str());
}

Result<void> ShardFile::write_at(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return fail(Code::kResourceExhausted, "can't write {} at byte {}: {}", path_, offset, std::strerror(errno));
    }
    offset += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Result<void> ShardFile::commit() {
  const bool durable = ::fsync(descriptor_) == 0;
  const int error = errno;
  ::close(std::exchange(descriptor_, -1));
  if (durable && std::rename(part_path().c_str(), path_.c_str()) == 0) {
    sync_folder_of(path_);
    return {};
  }
  const int reason = durable ? errno : error;
  std::remove(part_path().c_str());
  return fail(Code::kResourceExhausted, "can't write {}: {}", path_, std::strerror(reason));
}

Result<std::vector<Shard>> split_into_shards(std::span<const TensorDecl> tensors, int64_t shard_bytes,
                                             std::span<const size_t> keep_together) {
  std::vector<Shard> shards(1);
  int64_t held = 0;
  size_t group = 0;
  for (size_t begin = 0; begin < tensors.size();) {
    while (group < keep_together.size() && keep_together[group] <= begin) ++group;
    const size_t next = group < keep_together.size() ? keep_together[group] : tensors.size();
    const size_t end = keep_together.empty() ? begin + 1 : next;
    int64_t bytes = 0;
    for (size_t i = begin; i < end; ++i) {
      BATON_TRY_ASSIGN(const int64_t more, tensor_bytes(tensors[i].dtype, tensors[i].shape));
      bytes += more;
    }
    if (held > 0 && held + bytes > shard_bytes) {
      shards.push_back({.file_name = "", .begin = begin, .end = begin, .layout = {}});
      held = 0;
    }
    held += bytes;
    shards.back().end = end;
    begin = end;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    Shard& shard = shards[i];
    shard.file_name = shards.size() == 1 ? "model.safetensors"
                                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    BATON_TRY_ASSIGN(shard.layout,
                     layout_safetensors(tensors.subspan(shard.begin, shard.end - shard.begin), {{"format", "pt"}}));
  }
  return shards;
}

std::string shard_index_json(std::span<const TensorDecl> tensors, std::span<const Shard> shards) {
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  int64_t total = 0;
  for (const Shard& shard : shards) {
    for (size_t i = shard.begin; i < shard.end; ++i) weight_map.push_back({tensors[i].name, shard.file_name});
    total += shard.layout.file_bytes - static_cast<int64_t>(shard.layout.header.size());
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace baton::weights
