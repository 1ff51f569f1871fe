// Opens a .gguf file, or all files of a split one (NAME-00001-of-0000N.gguf, as llama.cpp's gguf-split writes them).
#include <cstdio>

#include "weights/gguf_reader.h"
#include "weights/mapped_checkpoint.h"
#include "weights/printable.h"

namespace baton::weights {
namespace {

using nlohmann::json;

constexpr int64_t kSplitFilesMax = 99999;  // five digits in the names

// 0 if absent.
Result<int64_t> split_number(const GgufHeader& header, const char* key, std::string_view path) {
  const auto it = header.metadata.find(key);
  if (it == header.metadata.end()) return 0;
  if (!it->is_number_integer() || *it < 0 || *it > INT32_MAX) {
    return fail(Code::kDataLoss, "{}: metadata key {} is not a count", path, key);
  }
  return it->get<int64_t>();
}

std::string split_suffix(int64_t index, int64_t count) { return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count); }

Result<GgufHeader> map_file(CheckpointParts& parts, const std::string& path) {
  BATON_TRY_ASSIGN(auto file, map_regular_file(path));
  BATON_TRY_ASSIGN(auto header, parse_gguf(file.bytes(), path));
  parts.files.push_back(std::move(file));
  parts.file_paths.push_back(path);
  return header;
}

Result<void> add_tensors(CheckpointParts& parts, GgufHeader& header, const std::string& path) {
  const int file_index = static_cast<int>(parts.files.size()) - 1;
  const std::byte* data = parts.files.back().bytes().data();
  for (auto& tensor : header.tensors) {
    const std::string name = tensor.name;
    TensorEntry entry{name,         tensor.dtype, std::move(tensor.shape), data + tensor.file_offset,
                      tensor.bytes, file_index,   tensor.file_offset};
    if (!parts.tensors.emplace(name, std::move(entry)).second) {
      return fail(Code::kDataLoss, "{}: tensor {} is in another of the split files too", path, printable(name));
    }
  }
  return {};
}

Result<void> add_split(CheckpointParts& parts, const std::string& prefix, int64_t index, int64_t count) {
  const std::string path = prefix + split_suffix(index, count);
  auto mapped = map_file(parts, path);
  if (!mapped.has_value()) {
    return fail(mapped.error().with_context(fmt::format("split file {} of {}", index + 1, count)));
  }
  BATON_TRY_ASSIGN(const auto number, split_number(*mapped, "split.no", path));
  BATON_TRY_ASSIGN(const auto its_count, split_number(*mapped, "split.count", path));
  if (number != index || its_count != count) {
    return fail(Code::kDataLoss, "{}: its split.no is {} of {}, its name says {} of {}", path, number, its_count, index,
                count);
  }
  return add_tensors(parts, *mapped, path);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path) {
  CheckpointParts parts;
  parts.format = Checkpoint::Format::kGguf;
  parts.path = path;
  BATON_TRY_ASSIGN(auto first, map_file(parts, path));
  BATON_TRY_ASSIGN(const auto count, split_number(first, "split.count", path));
  BATON_TRY_ASSIGN(const auto number, split_number(first, "split.no", path));
  BATON_TRY_ASSIGN(const auto total, split_number(first, "split.tensors.count", path));
  BATON_TRY(add_tensors(parts, first, path));
  if (count > 1) {
    if (count > kSplitFilesMax) return fail(Code::kDataLoss, "{}: split.count is {}", path, count);
    if (number != 0) {
      return fail(Code::kInvalidArgument, "{} is file {} of a split model; give the first one (*{})", path, number + 1,
                  split_suffix(0, count));
    }
    const std::string suffix = split_suffix(0, count);
    if (!path.ends_with(suffix)) {
      return fail(Code::kInvalidArgument, "{} is the first of {} split files, so its name must end in {}", path, count,
                  suffix);
    }
    const std::string prefix = path.substr(0, path.size() - suffix.size());
    for (int64_t i = 1; i < count; ++i) BATON_TRY(add_split(parts, prefix, i, count));
    if (total != 0 && total != static_cast<int64_t>(parts.tensors.size())) {
      return fail(Code::kDataLoss, "{}: split.tensors.count is {}, the {} files hold {}", path, total, count,
                  parts.tensors.size());
    }
  }
  parts.config = std::move(first.metadata);
  return std::make_unique<MappedCheckpoint>(std::move(parts));
}

}  // namespace baton::weights
