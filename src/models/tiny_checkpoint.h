// Writes the tiny Llamas of tools/goldens/models_tiny_llama.py: weights are a fixed function of tensor and element, the
// same here and there.
#pragma once

#include <stdlib.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/llama/llama_tensors.h"
#include "weights/gguf_writer.h"
#include "weights/safetensors_writer.h"

namespace baton::models {

struct TinySpec {
  bool gguf = false;
  tensor::DType dtype = tensor::DType::kF32;
  bool tied = false;
  bool biases = false;
  int head_dim = 16;
  nlohmann::json config_patch = nlohmann::json::object();  // HF: merged into config.json
  std::vector<float> rope_factors;                         // GGUF: rope_freqs.weight
  // Changes to the tensors before they are written, to make them wrong.
  std::function<void(std::vector<weights::TensorSource>&)> damage;
  std::string gguf_architecture = "llama";
};

class TinyCheckpoint {
 public:
  static constexpr int kHidden = 64, kIntermediate = 96, kVocab = 128, kLayers = 2, kHeads = 4, kKvHeads = 2;

  explicit TinyCheckpoint(const TinySpec& spec) : spec_(spec) {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton_models_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    make_tensors();
    if (spec.damage) spec.damage(tensors_);
    written_ = spec.gguf ? write_gguf() : write_folder();
  }
  ~TinyCheckpoint() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TinyCheckpoint(const TinyCheckpoint&) = delete;
  TinyCheckpoint& operator=(const TinyCheckpoint&) = delete;

  const Result<void>& written() const { return written_; }
  std::string path() const { return spec_.gguf ? folder_ + "/model.gguf" : folder_; }
  std::string name(LlamaTensor tensor, int layer = 0) const { return llama_tensor_name(tensor, layer, format()); }

 private:
  using DType = tensor::DType;

  weights::Checkpoint::Format format() const {
    return spec_.gguf ? weights::Checkpoint::Format::kGguf : weights::Checkpoint::Format::kHuggingFace;
  }

  static uint64_t bits(const std::string& name, uint64_t index) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    uint64_t z = h + index + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  static float uniform(const std::string& name, uint64_t index) {
    return static_cast<float>(static_cast<double>(bits(name, index) >> 40) / 8388608.0 - 1);
  }

  template <typename T>
  static void append(std::vector<std::byte>& bytes, T value) {
    const auto* data = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), data, data + sizeof(T));
  }

  void add(const std::string& name, DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes) {
    tensors_.push_back({name, dtype, std::move(shape), {}});
    const auto& stored = bytes_[name] = std::move(bytes);
    tensors_.back().data = stored;
  }

  void add_vector(const std::string& name, const std::string& role, int64_t size, float offset, float scale) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < size; ++i) append(bytes, offset + uniform(role, i) * scale);
    add(name, DType::kF32, {size}, std::move(bytes));
  }

  void add_matrix(const std::string& name, const std::string& role, int64_t rows, int64_t columns, float scale) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (spec_.dtype == DType::kQ8_0) {
        if (i % 32 == 0) append(bytes, uint16_t{0x1c00});  // 2^-8 as f16
        append(bytes, static_cast<int8_t>(static_cast<int>(bits(role, i) >> 57) - 64));
      } else if (spec_.dtype == DType::kBF16) {
        append(bytes, static_cast<uint16_t>(std::bit_cast<uint32_t>(uniform(role, i) * scale) >> 16));
      } else {
        append(bytes, uniform(role, i) * scale);
      }
    }
    add(name, spec_.dtype, {rows, columns}, std::move(bytes));
  }

  void add_linear(LlamaTensor tensor, const std::string& role, int layer, int64_t rows, int64_t columns) {
    const std::string suffix = "." + std::to_string(layer);
    add_matrix(name(tensor, layer), role + suffix, rows, columns, 0.25f);
    if (spec_.biases) {
      add_vector(llama_bias_name(tensor, layer, format()), role + "_bias" + suffix, rows, 0, 0.25f);
    }
  }

  void make_tensors() {
    add_matrix(name(LlamaTensor::kEmbedding), "embedding", kVocab, kHidden, 1);
    if (!spec_.tied) add_matrix(name(LlamaTensor::kLmHead), "lm_head", kVocab, kHidden, 0.25f);
    add_vector(name(LlamaTensor::kFinalNorm), "final_norm", kHidden, 1, 0.125f);
    const int q = kHeads * spec_.head_dim, kv = kKvHeads * spec_.head_dim;
    for (int i = 0; i < kLayers; ++i) {
      add_vector(name(LlamaTensor::kAttentionNorm, i), "attn_norm." + std::to_string(i), kHidden, 1, 0.125f);
      add_vector(name(LlamaTensor::kMlpNorm, i), "mlp_norm." + std::to_string(i), kHidden, 1, 0.125f);
      add_linear(LlamaTensor::kQ, "q", i, q, kHidden);
      add_linear(LlamaTensor::kK, "k", i, kv, kHidden);
      add_linear(LlamaTensor::kV, "v", i, kv, kHidden);
      add_linear(LlamaTensor::kO, "o", i, kHidden, q);
      add_linear(LlamaTensor::kGate, "gate", i, kIntermediate, kHidden);
      add_linear(LlamaTensor::kUp, "up", i, kIntermediate, kHidden);
      add_linear(LlamaTensor::kDown, "down", i, kHidden, kIntermediate);
    }
  }

  Result<void> write_gguf() {
    weights::GgufWriter writer;
    writer.set("general.architecture", spec_.gguf_architecture);
    writer.set("llama.block_count", uint32_t{kLayers});
    writer.set("llama.context_length", uint32_t{512});
    writer.set("llama.embedding_length", uint32_t{kHidden});
    writer.set("llama.feed_forward_length", uint32_t{kIntermediate});
    writer.set("llama.attention.head_count", uint32_t{kHeads});
    writer.set("llama.attention.head_count_kv", uint32_t{kKvHeads});
    writer.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer.set("llama.rope.freq_base", 10000.0f);
    writer.set("llama.rope.dimension_count", static_cast<uint32_t>(spec_.head_dim));
    if (!spec_.rope_factors.empty()) {
      writer.add_tensor({"rope_freqs.weight",
                         DType::kF32,
                         {std::ssize(spec_.rope_factors)},
                         std::as_bytes(std::span(spec_.rope_factors))});
    }
    for (const auto& tensor : tensors_) writer.add_tensor(tensor);
    return writer.write(path());
  }

  Result<void> write_folder() {
    nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                             {"model_type", "llama"},
                             {"hidden_size", kHidden},
                             {"intermediate_size", kIntermediate},
                             {"vocab_size", kVocab},
                             {"num_hidden_layers", kLayers},
                             {"num_attention_heads", kHeads},
                             {"num_key_value_heads", kKvHeads},
                             {"max_position_embeddings", 512},
                             {"rms_norm_eps", 1e-5},
                             {"rope_theta", 10000.0},
                             {"hidden_act", "silu"},
                             {"tie_word_embeddings", spec_.tied},
                             {"attention_bias", spec_.biases},
                             {"mlp_bias", spec_.biases},
                             {"torch_dtype", "float32"}};
    if (spec_.head_dim * kHeads != kHidden) config["head_dim"] = spec_.head_dim;
    config.update(spec_.config_patch);
    std::ofstream(folder_ + "/config.json") << config.dump(2);
    return weights::write_safetensors(folder_ + "/model.safetensors", tensors_);
  }

  TinySpec spec_;
  std::string folder_;
  std::vector<weights::TensorSource> tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  Result<void> written_;
};

}  // namespace baton::models
