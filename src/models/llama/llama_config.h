// The shape of a Llama checkpoint, read from GGUF metadata or config.json. Errors name the key.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "models/layers/gqa.h"
#include "models/layers/rope_table.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace baton::models {

struct LlamaConfig {
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t vocab = 0;
  int layers = 0;
  int max_positions = 0;
  float rms_epsilon = 0;
  GqaShape attention;
  RopeSpec rope;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  tensor::DType native_dtype = tensor::DType::kBF16;

  // Every field that changes a number, as text: part of the model's identity.
  std::string canonical_text() const;
};

// kUnimplemented for what Llama checkpoints may ask for and this version lacks (yarn, experts, sliding windows, ...).
Result<LlamaConfig> read_llama_config(const weights::Checkpoint& checkpoint);
Result<LlamaConfig> read_llama_config_gguf(const weights::Checkpoint& checkpoint);
Result<LlamaConfig> read_llama_config_hf(const weights::Checkpoint& checkpoint);
// What both formats must satisfy.
Result<LlamaConfig> checked_llama_config(LlamaConfig config, const std::string& where);

}  // namespace baton::models
