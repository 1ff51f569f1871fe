// The tiny checkpoints and expected values under tests/data/goldens/families (tools/goldens/families says how they were
// made). A manifest lists tensors; their values are a fixed function of name and element, the same here and there.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "weights/safetensors_writer.h"

namespace baton::models {

inline std::string golden_folder(const std::string& family) {
  return std::string(BATON_SOURCE_DIR) + "/tests/data/goldens/families/" + family;
}

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)); }

// offset + scale * uniform(name, i), in fp32.
inline std::vector<float> manifest_values(const nlohmann::json& tensor) {
  const auto name = tensor["name"].get<std::string>();
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  int64_t count = 1;
  for (const auto& size : tensor["shape"]) count *= size.get<int64_t>();
  const auto scale = tensor["scale"].get<float>(), offset = tensor["offset"].get<float>();
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t z = hash + static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const auto unit = static_cast<float>(static_cast<double>(z >> 40) / 8388608.0 - 1);
    const float product = scale * unit;
    values[static_cast<size_t>(i)] = offset + product;
  }
  return values;
}

// A family's tiny checkpoint, written into a folder of its own for as long as this lives.
class GoldenCheckpoint {
 public:
  explicit GoldenCheckpoint(const std::string& family) {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton_golden_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::filesystem::copy_file(golden_folder(family) + "/config.json", folder_ + "/config.json");
    const nlohmann::json manifest = read_json(golden_folder(family) + "/manifest.json");
    std::vector<std::vector<float>> values;
    std::vector<weights::TensorSource> tensors;
    for (const auto& tensor : manifest["tensors"]) values.push_back(manifest_values(tensor));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& tensor = manifest["tensors"][i];
      tensors.push_back({tensor["name"], tensor::DType::kF32, tensor["shape"].get<std::vector<int64_t>>(),
                         std::as_bytes(std::span(values[i]))});
    }
    const auto written = weights::write_safetensors(folder_ + "/model.safetensors", tensors);
    BATON_CHECK(written.has_value());
  }
  ~GoldenCheckpoint() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  GoldenCheckpoint(const GoldenCheckpoint&) = delete;
  GoldenCheckpoint& operator=(const GoldenCheckpoint&) = delete;

  const std::string& path() const { return folder_; }

 private:
  std::string folder_;
};

// One golden case of a family: arrays beside an index.
class GoldenCase {
 public:
  GoldenCase(const std::string& family, const std::string& name)
      : folder_(golden_folder(family) + "/" + name), index_(read_json(folder_ + "/index.json")) {}

  template <typename T>
  std::vector<T> array(const std::string& name) const {
    static_assert(sizeof(T) == 4);
    std::ifstream file(folder_ + "/" + index_["arrays"][name]["file"].get<std::string>(), std::ios::binary);
    int64_t count = 1;
    for (const auto& size : index_["arrays"][name]["shape"]) count *= size.get<int64_t>();
    std::vector<T> values(static_cast<size_t>(count));
    file.read(reinterpret_cast<char*>(values.data()), count * 4);
    BATON_CHECK(file.good(), "{}/{}", folder_, name);
    return values;
  }
  const nlohmann::json& index() const { return index_; }

 private:
  std::string folder_;
  nlohmann::json index_;
};

}  // namespace baton::models
