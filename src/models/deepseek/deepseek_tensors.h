// Names and shapes of the tensors of these families, as their checkpoints publish them and as llama.cpp's converter
// writes them into GGUF files.
#pragma once

#include <string>
#include <vector>

#include "models/deepseek/deepseek_config.h"
#include "models/tensor_table.h"
#include "weights/checkpoint.h"

namespace baton::models {

// Where a checkpoint's names begin and what its mixture of experts is called. Found by looking, since one architecture
// is published under several prefixes.
struct DeepseekNames {
  std::string root = "model.";   // "language_model.model." where a vision tower stands beside
  std::string head = "lm_head";  // "language_model.lm_head"
  std::string moe = "mlp";       // "block_sparse_moe"
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  // of a routed expert; w1, w3, w2

  // A GGUF file: what is said here in published names is found by file().
  bool gguf = false;
  std::vector<bool> kda_layers;  // by layer; a gate has another name there

  static DeepseekNames of(const weights::Checkpoint& checkpoint, const DeepseekConfig& config);

  // The name in the file of a tensor with this published name: itself, or llama.cpp's ("blk.3.attn_q_a.weight").
  std::string file(const std::string& published) const;

  std::string layer(int index) const { return fmt::format("{}layers.{}.", root, index); }
  std::string attention(int index) const { return layer(index) + "self_attn."; }
  std::string experts(int index) const { return layer(index) + moe + "."; }
  std::string expert(int layer_index, int64_t expert_index) const {
    return fmt::format("{}experts.{}.", experts(layer_index), expert_index);
  }
};

TensorTable deepseek_tensor_table(const DeepseekConfig& config, const DeepseekNames& names);

}  // namespace baton::models
