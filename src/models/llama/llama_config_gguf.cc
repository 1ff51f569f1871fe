// GGUF metadata of the architecture "llama" (keys as llama.cpp writes them).
#include <cmath>
#include <cstring>

#include "models/config_limits.h"
#include "models/config_reader.h"
#include "models/llama/llama_config.h"
#include "models/tensor_table.h"

namespace baton::models {
namespace {

using tensor::DType;
using weights::TensorEntry;

const TensorEntry* find(const weights::Checkpoint& checkpoint, const std::string& name) {
  const auto it = checkpoint.tensors().find(name);
  return it == checkpoint.tensors().end() ? nullptr : &it->second;
}

// llama.cpp permutes q and k when it converts, so that pairs lie side by side.
constexpr auto kPairing = kernels::RopePairing::kInterleaved;

void read_rope(ConfigReader& reader, const weights::Checkpoint& checkpoint, LlamaConfig& config) {
  config.rope.theta = reader.positive_real_or("rope.freq_base", 10000);
  const std::string type = reader.text_or("rope.scaling.type", "none");
  if (type == "linear") {
    config.rope.linear = LinearRopeScaling{reader.positive_real("rope.scaling.factor")};
  } else if (type != "none") {
    reader.refuse(Code::kUnimplemented, "{} is \"{}\"; this version has none and linear",
                  reader.full_key("rope.scaling.type"), type);
  } else if (!reader.absent("rope.scale_linear")) {
    config.rope.linear = LinearRopeScaling{reader.positive_real("rope.scale_linear")};
  }
  const TensorEntry* factors = find(checkpoint, "rope_freqs.weight");
  if (factors == nullptr) return;
  const std::vector<int64_t> shape = {config.attention.rope_dim / 2};
  if (factors->dtype != DType::kF32 || factors->shape != shape) {
    reader.refuse(Code::kDataLoss, "tensor rope_freqs.weight is {} {}, it must be f32 {}",
                  tensor::dtype_name(factors->dtype), shape_text(factors->shape), shape_text(shape));
    return;
  }
  config.rope.frequency_factors.resize(shape[0]);
  std::memcpy(config.rope.frequency_factors.data(), factors->data, shape[0] * sizeof(float));
  for (const float factor : config.rope.frequency_factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      reader.refuse(Code::kDataLoss, "tensor rope_freqs.weight holds {}; factors must be above 0", factor);
      return;
    }
  }
}

// Quantised and f16 files compute in f16, as llama.cpp's cache does.
DType native_dtype(const weights::Checkpoint& checkpoint) {
  const TensorEntry* tensor = find(checkpoint, "blk.0.attn_q.weight");
  if (tensor != nullptr && (tensor->dtype == DType::kBF16 || tensor->dtype == DType::kF32)) return tensor->dtype;
  return DType::kF16;
}

}  // namespace

Result<LlamaConfig> read_llama_config_gguf(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint.config(), checkpoint.path() + ": GGUF metadata", "llama.");
  LlamaConfig config;
  config.layers = static_cast<int>(reader.positive("block_count", kLayersMax));
  config.max_positions = static_cast<int>(reader.positive("context_length", kPositionsMax));
  config.hidden = reader.positive("embedding_length", kFeaturesMax);
  config.intermediate = reader.positive("feed_forward_length", kFeaturesMax);
  config.rms_epsilon = static_cast<float>(reader.positive_real("attention.layer_norm_rms_epsilon"));
  GqaShape& attention = config.attention;
  attention.heads = static_cast<int>(reader.positive("attention.head_count", kHeadsMax));
  attention.kv_heads = static_cast<int>(reader.positive_or("attention.head_count_kv", attention.heads, kHeadsMax));
  attention.head_dim = static_cast<int>(
      reader.positive_or("attention.key_length", std::max<int64_t>(1, config.hidden / attention.heads), kHeadDimMax));
  const int64_t value_dim = reader.positive_or("attention.value_length", attention.head_dim, kHeadDimMax);
  attention.rope_dim = static_cast<int>(reader.positive_or("rope.dimension_count", attention.head_dim, kHeadDimMax));
  attention.pairing = kPairing;
  if (value_dim != attention.head_dim) {
    reader.refuse(Code::kUnimplemented, "llama.attention.value_length {} differs from the key length {}", value_dim,
                  attention.head_dim);
  }
  const nlohmann::json& metadata = checkpoint.config();
  if (const auto experts = metadata.find("llama.expert_count"); experts != metadata.end() && *experts != 0) {
    reader.refuse(Code::kUnimplemented, "llama.expert_count is {}; mixtures of experts are not in this version",
                  experts->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
  read_rope(reader, checkpoint, config);
  BATON_TRY(reader.finish());
  // The table of tensors is checked against what the first block and the embedding hold.
  const TensorEntry* embedding = find(checkpoint, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return fail(Code::kDataLoss, "{}: tensor token_embd.weight is missing or not a matrix", checkpoint.path());
  }
  config.vocab = embedding->shape[0];
  config.tied_embeddings = find(checkpoint, "output.weight") == nullptr;
  config.qkv_bias = find(checkpoint, "blk.0.attn_q.bias") != nullptr;
  config.output_bias = find(checkpoint, "blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = find(checkpoint, "blk.0.ffn_down.bias") != nullptr;
  config.native_dtype = native_dtype(checkpoint);
  return checked_llama_config(config, checkpoint.path());
}

}  // namespace baton::models
