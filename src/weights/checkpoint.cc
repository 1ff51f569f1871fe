#include "weights/checkpoint.h"

#include <filesystem>

#include "weights/mapped_checkpoint.h"

namespace baton::weights {

namespace fs = std::filesystem;

Result<tensor::MappedFile> map_regular_file(const std::string& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return fail(Code::kNotFound, "{} does not exist", path);
  if (error) return fail(Code::kNotFound, "can't open {}: {}", path, error.message());
  if (status.type() != fs::file_type::regular) return fail(Code::kInvalidArgument, "{} is not a regular file", path);
  return tensor::MappedFile::open(path);
}

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return open_huggingface_checkpoint(path);
  return open_gguf_checkpoint(path);
}

}  // namespace baton::weights
