// Names and shapes of a Llama checkpoint's tensors in both layouts.
#pragma once

#include <cstdint>
#include <string>

#include "models/llama/llama_config.h"
#include "models/tensor_table.h"

namespace baton::models {

enum class LlamaTensor : uint8_t {
  kEmbedding,
  kFinalNorm,
  kLmHead,
  // of a layer:
  kAttentionNorm,
  kQ,
  kK,
  kV,
  kO,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
};

// "blk.3.attn_q.weight" or "model.layers.3.self_attn.q_proj.weight". `layer` counts for tensors of a layer.
std::string llama_tensor_name(LlamaTensor tensor, int layer, weights::Checkpoint::Format format);
std::string llama_bias_name(LlamaTensor tensor, int layer, weights::Checkpoint::Format format);
bool llama_has_bias(LlamaTensor tensor, const LlamaConfig& config);

TensorTable llama_tensor_table(const LlamaConfig& config, weights::Checkpoint::Format format);

}  // namespace baton::models
