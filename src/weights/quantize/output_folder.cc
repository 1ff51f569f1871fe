#include "weights/quantize/output_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "weights/json_parse.h"
#include "weights/mapped_checkpoint.h"
#include "weights/output_file.h"

namespace baton::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kNote = "baton_quantize_unfinished.json";

std::string in_folder(const std::string& folder, std::string_view name) { return (fs::path(folder) / name).string(); }

Result<void> expect_no_model(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto name = it->path().filename().string();
    if (name == "config.json" || name.ends_with(".safetensors")) {
      return fail(Code::kAlreadyExists, "{} holds {} already; give a new folder", folder, name);
    }
  }
  return {};
}

bool holds_weights(std::string_view name) {
  for (const std::string_view ending : {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt",
                                        ".pth", ".gguf", ".onnx", ".part"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

int64_t bytes_standing(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const auto size = it->is_regular_file(ignored) ? it->file_size(ignored) : 0;
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

json quantize_identity(const Checkpoint& checkpoint, const QuantizeOptions& options) {
  json files = json::object();
  std::set<std::string> paths;
  for (const auto& [name, entry] : checkpoint.tensors()) paths.insert(checkpoint.file_path(entry));
  for (const auto& path : paths) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    const auto time = fs::last_write_time(path, error).time_since_epoch().count();
    files[fs::path(path).filename().string()] = {{"bytes", size}, {"time", time}};
  }
  json inputs = json::object();
  for (const auto& [name, input] : options.inputs) inputs[name] = {input.scale, input.offset};
  std::error_code error;
  return {{"input", fs::absolute(checkpoint.path(), error).lexically_normal().string()},
          {"files", files},
          {"config", checkpoint.config()},
          {"scheme", quant_scheme_name(options.scheme)},
          {"shard_bytes", options.shard_bytes},
          {"input_range", options.input_range},
          {"inputs", inputs}};
}

Result<OutputFolder> OutputFolder::open(const std::string& path, const json& identity, int64_t bytes) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return fail(Code::kNotFound, "can't create folder {}: {}", path, error.message());
  const std::string note = in_folder(path, kNote);
  if (fs::exists(note, error)) {
    BATON_TRY_ASSIGN(const json found, read_json_object(note));
    // Through text: what was written and what is compared are rounded alike.
    for (const auto& [key, value] : identity.items()) {
      if (found.contains(key) && found[key].dump() == value.dump()) continue;
      return fail(Code::kAlreadyExists,
                  "{} holds the beginnings of another quantisation (its \"{}\" differs); remove the folder, or give "
                  "another",
                  path, key);
    }
  } else {
    BATON_TRY(expect_no_model(path));
    BATON_TRY(write_text_file(note, identity.dump(1) + "\n"));
  }
  const auto space = fs::space(path, error);
  const int64_t missing = bytes - bytes_standing(path);
  if (!error && static_cast<int64_t>(space.available) < missing) {
    return fail(Code::kResourceExhausted, "{} bytes are needed in {}, where {} are free", missing, path,
                space.available);
  }
  return OutputFolder(path);
}

std::string OutputFolder::file(std::string_view name) const { return in_folder(path_, name); }

Result<bool> OutputFolder::stands(const Shard& shard) const {
  const std::string path = file(shard.file_name);
  std::error_code error;
  if (!fs::exists(path, error)) return false;
  BATON_TRY_ASSIGN(const auto mapped, map_regular_file(path));
  const auto bytes = mapped.bytes();
  const auto& header = shard.layout.header;
  if (std::ssize(bytes) == shard.layout.file_bytes && std::equal(header.begin(), header.end(), bytes.begin())) {
    return true;
  }
  return fail(Code::kDataLoss, "{} is not the file that was written there; remove it to have it made again", path);
}

Result<void> OutputFolder::copy_others(const std::string& input) const {
  std::error_code error;
  for (fs::directory_iterator it(input, error), end; !error && it != end; it.increment(error)) {
    const auto name = it->path().filename().string();
    std::error_code kind;
    if (holds_weights(name) || name == "config.json" || name.starts_with(".") || !it->is_regular_file(kind)) continue;
    std::error_code failed;
    fs::copy_file(it->path(), file(name), fs::copy_options::overwrite_existing, failed);
    if (failed) return fail(Code::kResourceExhausted, "can't copy {} to {}: {}", name, path_, failed.message());
  }
  if (error) return fail(Code::kNotFound, "can't list {}: {}", input, error.message());
  return {};
}

Result<void> OutputFolder::finish() const {
  std::error_code error;
  fs::remove(file(kNote), error);
  if (error) return fail(Code::kInternal, "can't remove {}: {}", file(kNote), error.message());
  return {};
}

}  // namespace baton::weights
