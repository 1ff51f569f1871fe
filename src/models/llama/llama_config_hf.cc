// config.json of LlamaForCausalLM and MistralForCausalLM (keys of transformers 4 and 5).
#include <algorithm>

#include "models/config_limits.h"
#include "models/config_reader.h"
#include "models/llama/llama_config.h"

namespace baton::models {
namespace {

void read_scaling(ConfigReader& rope, LlamaConfig& config) {
  std::string type = rope.text_or("rope_type", "");
  if (type.empty()) type = rope.text_or("type", "default");
  if (type == "linear") {
    config.rope.linear = LinearRopeScaling{rope.positive_real("factor")};
  } else if (type == "llama3") {
    config.rope.llama3 = Llama3RopeScaling{
        .factor = rope.positive_real("factor"),
        .low_frequency_factor = rope.positive_real("low_freq_factor"),
        .high_frequency_factor = rope.positive_real("high_freq_factor"),
        .original_max_positions = rope.positive_real("original_max_position_embeddings"),
    };
  } else if (type != "default") {
    rope.refuse(Code::kUnimplemented, "rope_type is \"{}\"; this version has default, linear and llama3", type);
  }
}

// transformers 5 writes rope_parameters {rope_theta, rope_type, ...}; before, rope_theta and rope_scaling.
void read_rope(ConfigReader& reader, LlamaConfig& config) {
  config.rope.theta = reader.positive_real_or("rope_theta", 10000);
  const nlohmann::json* parameters = reader.object("rope_parameters");
  const std::string_view key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  if (parameters == nullptr) parameters = reader.object("rope_scaling");
  if (parameters == nullptr) return;
  ConfigReader rope(*parameters, fmt::format("{}: {}", reader.where(), key));
  config.rope.theta = rope.positive_real_or("rope_theta", config.rope.theta);
  read_scaling(rope, config);
  reader.take(rope);
}

void refuse_what_is_not_there(ConfigReader& reader) {
  const std::string activation = reader.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    reader.refuse(Code::kUnimplemented, "hidden_act is \"{}\"; this family has silu", activation);
  }
  if (!reader.absent("sliding_window")) {
    reader.refuse(Code::kUnimplemented, "sliding_window is set; sliding-window attention is not in this version");
  }
  if (reader.positive_real_or("partial_rotary_factor", 1) != 1) {
    reader.refuse(Code::kUnimplemented, "partial_rotary_factor must be 1");
  }
}

tensor::DType native_dtype(ConfigReader& reader) {
  std::string name = reader.text_or("dtype", "");
  if (name.empty()) name = reader.text_or("torch_dtype", "bfloat16");
  const auto dtype = tensor::parse_dtype(name);
  if (dtype && (*dtype == tensor::DType::kF32 || *dtype == tensor::DType::kF16 || *dtype == tensor::DType::kBF16)) {
    return *dtype;
  }
  reader.refuse(Code::kUnimplemented, "dtype is \"{}\"; this version has float32, float16 and bfloat16", name);
  return tensor::DType::kBF16;
}

}  // namespace

Result<LlamaConfig> read_llama_config_hf(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint.config(), checkpoint.path() + "/config.json");
  LlamaConfig config;
  config.hidden = reader.positive("hidden_size", kFeaturesMax);
  config.intermediate = reader.positive("intermediate_size", kFeaturesMax);
  config.vocab = reader.positive("vocab_size", kVocabMax);
  config.layers = static_cast<int>(reader.positive("num_hidden_layers", kLayersMax));
  config.max_positions = static_cast<int>(reader.positive_or("max_position_embeddings", 2048, kPositionsMax));
  config.rms_epsilon = static_cast<float>(reader.positive_real_or("rms_norm_eps", 1e-6));
  GqaShape& attention = config.attention;
  attention.heads = static_cast<int>(reader.positive("num_attention_heads", kHeadsMax));
  attention.kv_heads = static_cast<int>(reader.positive_or("num_key_value_heads", attention.heads, kHeadsMax));
  attention.head_dim = static_cast<int>(
      reader.positive_or("head_dim", std::max<int64_t>(1, config.hidden / attention.heads), kHeadDimMax));
  attention.rope_dim = attention.head_dim;
  attention.pairing = kernels::RopePairing::kHalfSplit;
  config.tied_embeddings = reader.flag_or("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.flag_or("attention_bias", false);
  config.mlp_bias = reader.flag_or("mlp_bias", false);
  config.native_dtype = native_dtype(reader);
  read_rope(reader, config);
  refuse_what_is_not_there(reader);
  BATON_TRY(reader.finish());
  return checked_llama_config(config, checkpoint.path() + "/config.json");
}

}  // namespace baton::models
