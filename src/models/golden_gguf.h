// The GGUF twin of a tiny checkpoint, written as tests/data/goldens/families/<family>/gguf.json says: with the metadata
// keys and tensor names of llama.cpp's converter.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "models/golden_checkpoint.h"
#include "weights/gguf_writer.h"

namespace baton::models {

class GoldenGguf {
 public:
  explicit GoldenGguf(const std::string& family) {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton_gguf_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    for (const auto& tensor : read_json(golden_folder(family) + "/manifest.json")["tensors"]) {
      published_[tensor["name"]] = manifest_values(tensor);
    }
    const nlohmann::json twin = read_json(golden_folder(family) + "/gguf.json");
    weights::GgufWriter writer;
    for (const auto& entry : twin["metadata"]) set(writer, entry);
    std::vector<std::vector<float>> values;
    for (const auto& tensor : twin["tensors"]) values.push_back(make(tensor));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& tensor = twin["tensors"][i];
      writer.add_tensor({tensor["name"], tensor::DType::kF32, tensor["shape"].get<std::vector<int64_t>>(),
                         std::as_bytes(std::span(values[i]))});
    }
    const auto written = writer.write(path());
    BATON_CHECK(written.has_value(), "{}", written.error().to_string());
  }
  ~GoldenGguf() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  GoldenGguf(const GoldenGguf&) = delete;
  GoldenGguf& operator=(const GoldenGguf&) = delete;

  std::string path() const { return folder_ + "/model.gguf"; }

 private:
  static void set(weights::GgufWriter& writer, const nlohmann::json& entry) {
    const auto key = entry["key"].get<std::string>(), type = entry["type"].get<std::string>();
    const nlohmann::json& value = entry["value"];
    if (type == "string") return writer.set(key, value.get<std::string>());
    if (type == "uint32") return writer.set(key, value.get<uint32_t>());
    if (type == "float32") return writer.set(key, value.get<float>());
    if (type == "bool") return writer.set(key, value.get<bool>());
    if (type == "array of int32") return writer.set_array(key, value.get<std::vector<int32_t>>());
    BATON_CHECK(false, "metadata type {}", type);
  }

  std::vector<float> make(const nlohmann::json& tensor) const {
    const auto operation = tensor["op"].get<std::string>();
    const auto shape = tensor["shape"].get<std::vector<int64_t>>();
    std::vector<float> first = published_.at(tensor["from"][0]);
    if (operation == "copy" || operation == "reshape") return first;
    if (operation == "stack") return stacked(tensor["from"]);
    if (operation == "k_b") return heads_part(first, shape[0], 0, shape[2], shape[1], true);
    if (operation == "v_b") return heads_part(first, shape[0], -shape[1], shape[1], shape[2], false);
    if (operation == "product") {
      const auto& other = published_.at(tensor["from"][1]);
      for (size_t i = 0; i < first.size(); ++i) first[i] *= other[i];
      return first;
    }
    BATON_CHECK(operation == "neg_exp", "operation {}", operation);
    first.resize(static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
    for (float& value : first) value = -std::exp(value);
    return first;
  }

  std::vector<float> stacked(const nlohmann::json& names) const {
    std::vector<float> all;
    for (const auto& name : names) {
      const auto& values = published_.at(name);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  // Rows [begin, begin + count) of each head of kv_b_proj (a negative begin counts from the head's end), [count, rank];
  // or transposed.
  static std::vector<float> heads_part(const std::vector<float>& kv_b, int64_t heads, int64_t begin, int64_t count,
                                       int64_t rank, bool transposed) {
    const int64_t per_head = std::ssize(kv_b) / rank / heads;
    std::vector<float> part(static_cast<size_t>(heads * count * rank));
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t first = h * per_head + (begin < 0 ? per_head + begin : begin);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t r = 0; r < rank; ++r) {
          const int64_t at = transposed ? r * count + i : i * rank + r;
          part[h * count * rank + at] = kv_b[(first + i) * rank + r];
        }
      }
    }
    return part;
  }

  std::string folder_;
  std::map<std::string, std::vector<float>> published_;
};

}  // namespace baton::models
