// config.json of DeepseekV3ForCausalLM, DeepseekV32ForCausalLM, KimiLinearForCausalLM and the Kimi K2.5 and K3
// families, whose text settings lie in "text_config". Keys have two spellings (DeepSeek's and Kimi's); both are read
// everywhere.
#include <algorithm>
#include <array>
#include <cfloat>
#include <initializer_list>

#include "models/config_limits.h"
#include "models/config_reader.h"
#include "models/deepseek/deepseek_config.h"
#include "weights/printable.h"

namespace baton::models {
namespace {

constexpr int64_t kExpertsMax = 65536;

// The one of two spellings that is there; the first, if none.
std::string_view spelling(const ConfigReader& reader, std::string_view one, std::string_view other) {
  return reader.absent(one) && !reader.absent(other) ? other : one;
}
int integer(ConfigReader& reader, std::string_view key, int64_t max) {
  return static_cast<int>(reader.positive(key, max));
}
// 0 where the key is absent or 0.
int count_or_none(ConfigReader& reader, const nlohmann::json& object, std::string_view key, int64_t max) {
  const auto it = object.find(key);
  if (it != object.end() && it->is_number_integer() && *it == 0) return 0;
  return reader.absent(key) ? 0 : integer(reader, key, max);
}

void read_yarn(ConfigReader& rope, DeepseekConfig& config) {
  config.rope.yarn = YarnRopeScaling{
      .factor = rope.positive_real("factor"),
      .original_max_positions = rope.positive_real_or("original_max_position_embeddings", config.max_positions),
      .beta_fast = rope.positive_real_or("beta_fast", 32),
      .beta_slow = rope.positive_real_or("beta_slow", 1),
      .mscale = rope.positive_real_or("mscale", 1),
      .mscale_all_dim = rope.absent("mscale_all_dim") ? 0 : rope.positive_real("mscale_all_dim"),
  };
}

// transformers 5 writes rope_parameters {rope_theta, rope_type, ...}; before, rope_theta and rope_scaling.
void read_rope(ConfigReader& reader, DeepseekConfig& config) {
  config.rope.theta = reader.positive_real_or("rope_theta", 10000);
  const nlohmann::json* parameters = reader.object("rope_parameters");
  const std::string_view key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  if (parameters == nullptr) parameters = reader.object("rope_scaling");
  if (parameters == nullptr) return;
  ConfigReader rope(*parameters, fmt::format("{}: {}", reader.where(), key));
  config.rope.theta = rope.positive_real_or("rope_theta", config.rope.theta);
  const std::string type = rope.text_or(spelling(rope, "rope_type", "type"), "default");
  if (type == "yarn") {
    read_yarn(rope, config);
  } else if (type == "linear") {
    config.rope.linear = LinearRopeScaling{rope.positive_real("factor")};
  } else if (type != "default") {
    rope.refuse(Code::kUnimplemented, "rope type is \"{}\"; this family has default, linear and yarn", type);
  }
  reader.take(rope);
}

void read_mla(ConfigReader& reader, DeepseekConfig& config) {
  MlaConfig& mla = config.mla;
  mla.heads = integer(reader, "num_attention_heads", kHeadsMax);
  mla.q_lora_rank = reader.absent("q_lora_rank") ? 0 : integer(reader, "q_lora_rank", kFeaturesMax);
  mla.kv_lora_rank = integer(reader, "kv_lora_rank", kFeaturesMax);
  mla.nope_dim = integer(reader, "qk_nope_head_dim", kHeadDimMax);
  mla.rope_dim = integer(reader, "qk_rope_head_dim", kHeadDimMax);
  mla.value_dim = integer(reader, "v_head_dim", kHeadDimMax);
  mla.rotary = !reader.flag_or("mla_use_nope", false);
  mla.output_gate = reader.flag_or("mla_use_output_gate", false);
  mla.pairing =
      reader.flag_or("rope_interleave", true) ? kernels::RopePairing::kInterleaved : kernels::RopePairing::kHalfSplit;
  if (reader.flag_or("attention_bias", false)) {
    reader.refuse(Code::kUnimplemented, "attention_bias is true; this family has none");
  }
}

// Zero-based numbers of the layers that a list of one-based numbers names.
void mark_kda_layers(ConfigReader& reader, const nlohmann::json& linear, DeepseekConfig& config) {
  const auto full = linear.find("full_attn_layers");
  if (full == linear.end() || !full->is_array()) {
    return reader.refuse(Code::kInvalidArgument, "linear_attn_config.full_attn_layers must be a list of layer numbers");
  }
  for (DeepseekLayer& layer : config.layers) layer.kda = true;
  for (const nlohmann::json& number : *full) {
    const bool fits = number.is_number_integer() && number >= 1 && number <= config.layers.size();
    if (!fits) {
      return reader.refuse(Code::kInvalidArgument,
                           "linear_attn_config.full_attn_layers holds {}; layers count from 1 to {}", number.dump(),
                           config.layers.size());
    }
    config.layers[number.get<size_t>() - 1].kda = false;
  }
  const auto kda = linear.find("kda_layers");
  if (kda == linear.end() || kda->is_null()) return;
  if (!kda->is_array()) {
    return reader.refuse(Code::kInvalidArgument, "linear_attn_config.kda_layers must be a list of layer numbers");
  }
  const auto kda_count = std::ranges::count(config.layers, true, &DeepseekLayer::kda);
  bool agrees = std::ssize(*kda) == kda_count;
  for (const nlohmann::json& number : *kda) {
    const bool fits = number.is_number_integer() && number >= 1 && number <= config.layers.size();
    agrees = agrees && fits && config.layers[number.get<size_t>() - 1].kda;
  }
  if (!agrees) {
    reader.refuse(Code::kInvalidArgument,
                  "linear_attn_config: kda_layers and full_attn_layers contradict each other (every layer must be in "
                  "exactly one)");
  }
}

void read_kda(ConfigReader& reader, DeepseekConfig& config) {
  const nlohmann::json* linear = reader.object("linear_attn_config");
  if (linear == nullptr) return;
  ConfigReader kda(*linear, reader.where() + ": linear_attn_config");
  KdaConfig read{
      .heads = integer(kda, "num_heads", kHeadsMax),
      .head_dim = integer(kda, "head_dim", kHeadDimMax),
      .conv_width = integer(kda, "short_conv_kernel_size", 16),
      .full_rank_gate = kda.flag_or("use_full_rank_gate", false),
  };
  const auto bound = linear->find("gate_lower_bound");
  if (bound != linear->end() && !bound->is_null()) {
    if (!bound->is_number() || !(*bound < 0.0) || *bound < -FLT_MAX) {
      kda.refuse(Code::kInvalidArgument, "gate_lower_bound must be a number below 0 that fits fp32, not {}",
                 bound->dump());
    } else {
      read.gate_lower_bound = bound->get<float>();
    }
  }
  reader.take(kda);
  config.kda = read;
  mark_kda_layers(reader, *linear, config);
  if (std::ranges::none_of(config.layers, &DeepseekLayer::kda)) config.kda.reset();
}

// A key that says something of the indexer and isn't read would change the answer silently: it is refused.
void refuse_unknown_index_keys(ConfigReader& reader, const nlohmann::json& object) {
  constexpr std::array<std::string_view, 11> kRead{
      "index_n_heads",
      "index_head_dim",
      "index_topk",
      "index_topk_freq",
      "index_skip_topk_offset",
      "index_k_norm",
      "index_dsa_use_layernorm",
      "index_kpool",
      "indexer_rope_interleave",
      "indexer_types",
      "index_kpool_always_select_tail",
  };
  for (const auto& [key, value] : object.items()) {
    if (!key.starts_with("index") || value.is_null() || std::ranges::find(kRead, key) != kRead.end()) continue;
    reader.refuse(Code::kUnimplemented, "{} is not a key of the indexer that this version knows: {} are",
                  weights::printable(key), fmt::join(kRead, ", "));
  }
}

void read_indexer(ConfigReader& reader, const nlohmann::json& object, DeepseekConfig& config) {
  refuse_unknown_index_keys(reader, object);
  if (reader.absent("index_topk")) return;
  IndexerConfig indexer{
      .heads = integer(reader, "index_n_heads", kHeadsMax),
      .dim = integer(reader, "index_head_dim", kHeadDimMax),
      .top_k = integer(reader, "index_topk", int64_t{1} << 30),
      .rope_dim = config.mla.rotary ? config.mla.rope_dim : 0,
  };
  const bool interleaved = reader.flag_or("indexer_rope_interleave", false);
  indexer.pairing = interleaved ? kernels::RopePairing::kInterleaved : kernels::RopePairing::kHalfSplit;
  if (!reader.flag_or("index_dsa_use_layernorm", true)) indexer.key_norm = IndexKeyNorm::kRms;
  const std::string norm = reader.text_or("index_k_norm", "");
  if (norm == "none")
    indexer.key_norm = IndexKeyNorm::kNone;
  else if (norm == "rms")
    indexer.key_norm = IndexKeyNorm::kRms;
  else if (norm == "layer")
    indexer.key_norm = IndexKeyNorm::kLayer;
  else if (!norm.empty())
    reader.refuse(Code::kInvalidArgument, "index_k_norm is \"{}\"; it may be layer, rms or none", norm);
  indexer.pool = static_cast<int>(reader.positive_or("index_kpool", 1, 1024));
  if (!reader.flag_or("index_kpool_always_select_tail", true)) {
    reader.refuse(Code::kUnimplemented,
                  "index_kpool_always_select_tail is false; this version always selects the tail");
  }
  // GLM 5 (transformers' GlmMoeDsa): the first layers have their own, then every index_topk_freq-th; counted over the
  // full-attention layers.
  const int64_t every = reader.positive_or("index_topk_freq", 1);
  const int64_t offset = reader.positive_or("index_skip_topk_offset", 2);
  int64_t full_attention = 0;
  for (DeepseekLayer& layer : config.layers) {
    if (layer.kda) continue;
    const bool own = std::max<int64_t>(full_attention++ - offset + 1, 0) % every == 0;
    layer.indexer = own ? IndexerRole::kOwn : IndexerRole::kShared;
  }
  // Which layers have their own, said one by one, counts more than a frequency.
  const auto types = object.find("indexer_types");
  if (types != object.end() && !types->is_null()) {
    if (!types->is_array()) {
      reader.refuse(Code::kInvalidArgument, "indexer_types must be a list of \"full\" and \"shared\"");
      return;
    }
    if (types->size() != config.layers.size()) {
      reader.refuse(Code::kInvalidArgument, "indexer_types has {} entries for {} layers", types->size(),
                    config.layers.size());
      return;
    }
    bool any = false;
    for (size_t i = 0; i < config.layers.size(); ++i) {
      if (config.layers[i].kda) continue;
      const bool shared = (*types)[i] == "shared";
      if (!shared && (*types)[i] != "full") {
        reader.refuse(Code::kInvalidArgument, "indexer_types holds {} for layer {}; it may be \"full\" or \"shared\"",
                      weights::printable((*types)[i].dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)), i);
      }
      if (shared && !any) reader.refuse(Code::kInvalidArgument, "indexer_types: layer {} shares what no layer has", i);
      config.layers[i].indexer = shared ? IndexerRole::kShared : IndexerRole::kOwn;
      any = any || !shared;
    }
  }
  config.indexer = indexer;
}

void read_moe(ConfigReader& reader, const nlohmann::json& object, DeepseekConfig& config) {
  const auto experts_key = spelling(reader, "n_routed_experts", "num_experts");
  const int experts = count_or_none(reader, object, experts_key, kExpertsMax);
  if (experts == 0) return;
  MoeConfig moe;
  moe.experts = experts;
  moe.experts_per_token =
      integer(reader, spelling(reader, "num_experts_per_tok", "num_experts_per_token"), kExpertsMax);
  moe.shared_experts =
      count_or_none(reader, object, spelling(reader, "n_shared_experts", "num_shared_experts"), kExpertsMax);
  moe.intermediate = reader.positive("moe_intermediate_size", kFeaturesMax);
  moe.latent =
      reader.absent("routed_expert_hidden_size") ? 0 : reader.positive("routed_expert_hidden_size", kFeaturesMax);
  moe.latent_norm = moe.latent != 0 && reader.flag_or("latent_moe_use_norm", false);
  const std::string scores = reader.text_or(spelling(reader, "scoring_func", "moe_router_activation_func"), "sigmoid");
  moe.softmax = scores == "softmax";
  if (scores != "softmax" && scores != "sigmoid") {
    reader.refuse(Code::kUnimplemented, "expert scores are \"{}\"; this version has sigmoid and softmax", scores);
  }
  const std::string method = reader.text_or("topk_method", "noaux_tc");
  if (method != "noaux_tc" && method != "greedy") {
    reader.refuse(Code::kUnimplemented, "topk_method is \"{}\"; this version has noaux_tc and greedy", method);
  }
  moe.correction_bias = method == "noaux_tc";
  moe.groups = static_cast<int>(reader.positive_or(spelling(reader, "n_group", "num_expert_group"), 1, kExpertsMax));
  moe.groups_per_token = static_cast<int>(reader.positive_or("topk_group", 1, kExpertsMax));
  moe.normalise = reader.flag_or(spelling(reader, "norm_topk_prob", "moe_renormalize"), true);
  moe.scaling = static_cast<float>(reader.positive_real_or("routed_scaling_factor", 1));
  config.moe = moe;

  const int dense = count_or_none(reader, object, "first_k_dense_replace", kLayersMax);
  const int64_t every = reader.positive_or("moe_layer_freq", 1);
  for (int64_t i = dense; i < std::ssize(config.layers); ++i) config.layers[i].moe = i % every == 0;
  if (std::ranges::none_of(config.layers, &DeepseekLayer::moe)) config.moe.reset();
}

void read_activation(ConfigReader& reader, DeepseekConfig& config) {
  const std::string activation = reader.text_or("hidden_act", "silu");
  if (activation == "situ") {
    config.situ = {.beta = static_cast<float>(reader.positive_real("activation_situ_beta")),
                   .linear_beta = static_cast<float>(reader.positive_real("activation_situ_linear_beta"))};
  } else if (activation != "silu") {
    reader.refuse(Code::kUnimplemented, "hidden_act is \"{}\"; this family has silu and situ", activation);
  }
}

// Of the text settings, or of the whole model where those are silent.
tensor::DType native_dtype(ConfigReader& reader, const nlohmann::json& top) {
  ConfigReader outer(top, reader.where());
  const std::string whole = outer.text_or(spelling(outer, "dtype", "torch_dtype"), "bfloat16");
  const std::string name = reader.text_or(spelling(reader, "dtype", "torch_dtype"), whole);
  const auto dtype = tensor::parse_dtype(name);
  if (dtype && *dtype <= tensor::DType::kBF16) return *dtype;
  reader.refuse(Code::kUnimplemented, "dtype is \"{}\"; this version has float32, float16 and bfloat16", name);
  return tensor::DType::kBF16;
}

std::string family_of(const nlohmann::json& config) {
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : "deepseek_v3";
}

}  // namespace

Result<DeepseekConfig> read_deepseek_config_hf(const weights::Checkpoint& checkpoint) {
  const nlohmann::json& top = checkpoint.config();
  std::string where = checkpoint.path() + "/config.json";
  const auto nested = top.find("text_config");
  const bool has_text = nested != top.end() && nested->is_object();
  const nlohmann::json& text = has_text ? *nested : top;
  if (has_text) where += ": text_config";

  ConfigReader reader(text, where);
  DeepseekConfig config;
  config.family = family_of(top);
  config.hidden = reader.positive("hidden_size", kFeaturesMax);
  config.intermediate = reader.positive("intermediate_size", kFeaturesMax);
  config.vocab = reader.positive("vocab_size", kVocabMax);
  config.layers.resize(static_cast<size_t>(reader.positive("num_hidden_layers", kLayersMax)));
  config.max_positions = static_cast<int>(
      reader.positive_or(spelling(reader, "max_position_embeddings", "model_max_length"), 4096, kPositionsMax));
  config.rms_epsilon = static_cast<float>(reader.positive_real_or("rms_norm_eps", 1e-6));
  config.tied_embeddings = reader.flag_or("tie_word_embeddings", false);
  config.draft_layers = count_or_none(reader, text, "num_nextn_predict_layers", 64);
  config.residual_block = count_or_none(reader, text, "attn_res_block_size", kLayersMax);
  config.native_dtype = native_dtype(reader, top);
  read_mla(reader, config);
  read_rope(reader, config);
  read_kda(reader, config);
  read_indexer(reader, text, config);
  read_moe(reader, text, config);
  read_activation(reader, config);
  BATON_TRY(reader.finish());
  return checked_deepseek_config(std::move(config), where);
}

}  // namespace baton::models
