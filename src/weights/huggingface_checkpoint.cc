// Opens a folder as Hugging Face and ModelScope lay them out: config.json, *.safetensors, perhaps an index.
#include <algorithm>
#include <filesystem>
#include <set>

#include "weights/json_parse.h"
#include "weights/mapped_checkpoint.h"
#include "weights/printable.h"
#include "weights/safetensors_reader.h"

namespace baton::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kAscendIndexName = "quant_model_weights.safetensors.index.json";  // ModelSlim's
constexpr std::string_view kSuffix = ".safetensors";
constexpr size_t kShardsMax = 4096;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string in_folder(const std::string& folder, std::string_view name) { return (fs::path(folder) / name).string(); }

// File names in the folder with an ending, sorted.
Result<std::vector<std::string>> list_files(const std::string& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(ending)) names.push_back(std::move(name));
  }
  if (error) return fail(Code::kNotFound, "can't list {}: {}", folder, error.message());
  std::ranges::sort(names);
  return names;
}

Result<json> required_config(const std::string& folder) {
  const std::string path = in_folder(folder, "config.json");
  if (exists(path)) return read_json_object(path);
  BATON_TRY_ASSIGN(const auto ggufs, list_files(folder, ".gguf"));
  if (!ggufs.empty()) {
    return fail(Code::kNotFound, "{} has no config.json; to serve a GGUF file give its own path, such as {}", folder,
                in_folder(folder, ggufs.front()));
  }
  return fail(Code::kNotFound, "{} has no config.json: not the folder of a model in Hugging Face's layout", folder);
}

Result<json> optional_config(const std::string& folder, std::string_view name) {
  const std::string path = in_folder(folder, name);
  if (!exists(path)) return json(json::object());
  return read_json_object(path);
}

// tensor name -> shard, and the shards.
struct ShardPlan {
  std::map<std::string, std::string> shard_of;  // empty without an index
  std::vector<std::string> shards;
};

// A name from the index may only name a file of this very folder.
bool is_plain_file_name(std::string_view name) {
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Result<ShardPlan> plan_from_index(const std::string& folder, const std::string& index_path) {
  BATON_TRY_ASSIGN(const auto index, read_json_object(index_path));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object() || weight_map->empty()) {
    return fail(Code::kDataLoss, "{} has no weight_map from tensors to files", index_path);
  }
  ShardPlan plan;
  std::set<std::string> shards;
  for (const auto& [tensor_name, shard] : weight_map->items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get_ref<const std::string&>())) {
      return fail(Code::kDataLoss, "{}: weight_map sends tensor {} to {}, which is not the name of a {} file in {}",
                  index_path, printable(tensor_name),
                  printable(shard.dump(-1, ' ', true, json::error_handler_t::replace)), kSuffix, folder);
    }
    plan.shard_of.emplace(tensor_name, shard.get<std::string>());
    shards.insert(shard.get<std::string>());
  }
  if (shards.size() > kShardsMax) {
    return fail(Code::kOutOfRange, "{} names {} files, at most {} are read", index_path, shards.size(), kShardsMax);
  }
  plan.shards.assign(shards.begin(), shards.end());
  return plan;
}

Result<ShardPlan> plan_shards(const std::string& folder) {
  const std::string index_path = in_folder(folder, kIndexName);
  if (exists(index_path)) return plan_from_index(folder, index_path);
  const std::string ascend_index_path = in_folder(folder, kAscendIndexName);
  if (exists(ascend_index_path)) return plan_from_index(folder, ascend_index_path);
  ShardPlan plan;
  if (exists(in_folder(folder, "model.safetensors"))) {
    plan.shards = {"model.safetensors"};
    return plan;
  }
  BATON_TRY_ASSIGN(plan.shards, list_files(folder, kSuffix));
  if (plan.shards.empty() || plan.shards.size() > kShardsMax) {
    return fail(Code::kNotFound, "{} has {} *.safetensors files (1 to {} are read; PyTorch .bin files are not)", folder,
                plan.shards.size(), kShardsMax);
  }
  return plan;
}

Result<void> add_shard(CheckpointParts& parts, const std::string& shard, const ShardPlan& plan) {
  const std::string path = in_folder(parts.path, shard);
  BATON_TRY_ASSIGN(auto file, map_regular_file(path));
  BATON_TRY_ASSIGN(auto header, parse_safetensors(file.bytes(), path));
  const int file_index = static_cast<int>(parts.files.size());
  const std::byte* data = file.bytes().data();
  parts.files.push_back(std::move(file));
  parts.file_paths.push_back(path);
  for (auto& tensor : header.tensors) {
    // A copy that the index does not point at is not the model's.
    const auto mapped = plan.shard_of.find(tensor.name);
    if (mapped != plan.shard_of.end() && mapped->second != shard) continue;
    const std::string name = tensor.name;
    TensorEntry entry{name,         tensor.dtype, std::move(tensor.shape), data + tensor.file_offset,
                      tensor.bytes, file_index,   tensor.file_offset};
    const auto [it, inserted] = parts.tensors.emplace(name, std::move(entry));
    if (!inserted) {
      return fail(Code::kDataLoss, "{}: tensor {} is in {} too", path, printable(name),
                  parts.file_paths[static_cast<size_t>(it->second.file_index)]);
    }
  }
  return {};
}

Result<void> check_index_kept(const CheckpointParts& parts, const ShardPlan& plan) {
  for (const auto& [tensor_name, shard] : plan.shard_of) {
    if (!parts.tensors.contains(tensor_name)) {
      return fail(Code::kDataLoss, "{}: tensor {} is not in {}, where {} says it is", parts.path,
                  printable(tensor_name), shard, "the index");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_huggingface_checkpoint(const std::string& folder) {
  CheckpointParts parts;
  parts.format = Checkpoint::Format::kHuggingFace;
  parts.path = folder;
  BATON_TRY_ASSIGN(parts.config, required_config(folder));
  BATON_TRY_ASSIGN(parts.generation_config, optional_config(folder, "generation_config.json"));
  BATON_TRY_ASSIGN(parts.tokenizer_config, optional_config(folder, "tokenizer_config.json"));
  BATON_TRY_ASSIGN(const auto plan, plan_shards(folder));
  for (const auto& shard : plan.shards) BATON_TRY(add_shard(parts, shard, plan));
  BATON_TRY(check_index_kept(parts, plan));
  return std::make_unique<MappedCheckpoint>(std::move(parts));
}

}  // namespace baton::weights
