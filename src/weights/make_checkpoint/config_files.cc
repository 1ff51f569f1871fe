#include "weights/make_checkpoint/config_files.h"

#include "weights/small_tokenizer.h"

namespace baton::weights {
namespace {

using nlohmann::ordered_json;
using tensor::DType;

const char* torch_dtype(DType dtype) {
  if (dtype == DType::kF32) return "float32";
  return dtype == DType::kF16 ? "float16" : "bfloat16";
}

void set_common(ordered_json& config, const CheckpointSizes& s, double rms_epsilon) {
  config["hidden_size"] = s.hidden;
  config["intermediate_size"] = s.intermediate;
  config["num_hidden_layers"] = s.layers;
  config["num_attention_heads"] = s.heads;
  config["num_key_value_heads"] = s.kv_heads > 0 ? s.kv_heads : s.heads;
  config["vocab_size"] = s.vocab;
  config["max_position_embeddings"] = s.max_positions;
  config["rms_norm_eps"] = rms_epsilon;
  config["tie_word_embeddings"] = false;
  config["bos_token_id"] = SmallTokenizer::kBosId;
  config["eos_token_id"] = SmallTokenizer::kEosId;
}

void set_mla(ordered_json& config, const CheckpointSizes& s) {
  config["q_lora_rank"] = s.q_lora_rank > 0 ? ordered_json(s.q_lora_rank) : ordered_json(nullptr);
  config["kv_lora_rank"] = s.kv_lora_rank;
  config["qk_nope_head_dim"] = s.nope_dim;
  config["qk_rope_head_dim"] = s.rope_dim;
  config["v_head_dim"] = s.v_dim;
}

void set_indexer(ordered_json& config, const CheckpointSizes& s) {
  config["index_n_heads"] = s.index_heads;
  config["index_head_dim"] = s.index_head_dim;
  config["index_topk"] = s.index_topk;
}

// The dictionary of DeepSeek V3, V3.2 and Kimi K2.
void set_deepseek(ordered_json& config, CheckpointArch arch, const CheckpointSizes& s) {
  const bool kimi = arch == CheckpointArch::kKimiK2 || arch == CheckpointArch::kKimiK25;
  set_common(config, s, kimi ? 1e-5 : 1e-6);
  set_mla(config, s);
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
  config["n_routed_experts"] = s.experts;
  config["num_experts_per_tok"] = s.experts_per_token;
  config["n_shared_experts"] = s.shared_experts;
  config["moe_intermediate_size"] = s.moe_intermediate;
  config["moe_layer_freq"] = 1;
  config["first_k_dense_replace"] = s.dense_layers;
  config["n_group"] = s.expert_groups;
  config["topk_group"] = s.groups_per_token;
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
  config["norm_topk_prob"] = true;
  config["routed_scaling_factor"] = kimi ? 2.827 : 2.5;
  config["num_nextn_predict_layers"] = s.mtp_layers;
  config["rope_theta"] = kimi ? 50000.0 : 10000.0;
  config["rope_scaling"] = nullptr;
  if (s.yarn_factor > 1) {
    config["rope_scaling"] = {{"type", "yarn"},
                              {"factor", s.yarn_factor},
                              {"original_max_position_embeddings", s.yarn_original_positions},
                              {"beta_fast", 32},
                              {"beta_slow", 1},
                              {"mscale", 1.0},
                              {"mscale_all_dim", 1.0}};
  }
  if (has_indexer(arch)) set_indexer(config, s);
}

ordered_json linear_attention(CheckpointArch arch, const CheckpointSizes& s) {
  ordered_json full = ordered_json::array();
  ordered_json kda = ordered_json::array();
  for (int layer = 0; layer < s.layers; ++layer) {
    (is_full_attention(s, layer) ? full : kda).push_back(layer + 1);  // counted from 1
  }
  ordered_json config = {{"full_attn_layers", full},
                         {"head_dim", s.linear_head_dim},
                         {"kda_layers", kda},
                         {"num_heads", s.linear_heads},
                         {"short_conv_kernel_size", s.conv_width}};
  if (is_k3_kind(arch)) {
    config["use_full_rank_gate"] = true;
    config["gate_lower_bound"] = -5.0;
  }
  return config;
}

// The dictionary of Kimi Linear and of K3's text model.
void set_kimi_linear(ordered_json& config, CheckpointArch arch, const CheckpointSizes& s) {
  set_common(config, s, 1e-5);
  set_mla(config, s);
  config["mla_use_nope"] = true;
  config["hidden_act"] = "silu";
  config["linear_attn_config"] = linear_attention(arch, s);
  config["first_k_dense_replace"] = s.dense_layers;
  config["moe_layer_freq"] = 1;
  config["num_experts"] = s.experts;
  config["num_experts_per_token"] = s.experts_per_token;
  config["num_shared_experts"] = s.shared_experts;
  config["moe_intermediate_size"] = s.moe_intermediate;
  config["moe_renormalize"] = true;
  config["moe_router_activation_func"] = "sigmoid";
  config["use_grouped_topk"] = true;
  config["num_expert_group"] = s.expert_groups;
  config["topk_group"] = s.groups_per_token;
  config["routed_scaling_factor"] = is_k3_kind(arch) ? 1.0 : 2.446;
  config["num_nextn_predict_layers"] = 0;
  config["rope_theta"] = 10000.0;
  config["rope_scaling"] = nullptr;
  if (!is_k3_kind(arch)) return;
  config["hidden_act"] = "situ";
  config["activation_situ_beta"] = 4.0;
  config["activation_situ_linear_beta"] = 25.0;
  config["mla_use_output_gate"] = true;
  config["attn_res_block_size"] = s.attn_res_block;
  config["routed_expert_hidden_size"] = s.routed_hidden;
  config["latent_moe_use_norm"] = true;
  config["topk_method"] = "noaux_tc";
  if (has_indexer(arch)) set_indexer(config, s);
}

ordered_json vision_config(CheckpointArch arch, const CheckpointSizes& s) {
  const bool k3 = is_k3_kind(arch);
  ordered_json config = {{"patch_size", 14},
                         {"init_pos_emb_height", 64},
                         {"init_pos_emb_width", 64},
                         {"init_pos_emb_time", 4},
                         {"pos_emb_type", "divided_fixed"},
                         {"pos_emb_interpolation", k3 ? "bilinear" : "bicubic"},
                         {"merge_kernel_size", {2, 2}},
                         {"merge_type", "sd2_tpool"},
                         {"vt_hidden_size", s.vision_hidden},
                         {"vt_intermediate_size", s.vision_intermediate},
                         {"vt_num_attention_heads", s.vision_heads},
                         {"vt_num_hidden_layers", s.vision_layers},
                         {"mm_projector_type", k3 ? "patchmergerv2" : "patchmerger"},
                         {"mm_hidden_size", s.vision_hidden},
                         {"projector_ln_eps", 1e-5},
                         {"text_hidden_size", s.hidden}};
  if (k3) config["qkv_hidden_size"] = s.vision_qkv;
  return config;
}

struct ClassNames {
  const char* architecture;
  const char* model_type;
  const char* text_model_type;  // null: the text model's settings stand at the top
};

ClassNames class_names(CheckpointArch arch) {
  switch (arch) {
    case CheckpointArch::kLlama:
      return {"LlamaForCausalLM", "llama", nullptr};
    case CheckpointArch::kDeepseekV3:
      return {"DeepseekV3ForCausalLM", "deepseek_v3", nullptr};
    case CheckpointArch::kDeepseekV32:
      return {"DeepseekV32ForCausalLM", "deepseek_v32", nullptr};
    case CheckpointArch::kKimiK2:
      return {"DeepseekV3ForCausalLM", "kimi_k2", nullptr};
    case CheckpointArch::kKimiK25:
      return {"KimiK25ForConditionalGeneration", "kimi_k25", "kimi_k2"};
    case CheckpointArch::kKimiLinear:
      return {"KimiLinearForCausalLM", "kimi_linear", nullptr};
    case CheckpointArch::kKimiK3:
    case CheckpointArch::kKimiK31:
      break;
  }
  return {"KimiK3ForConditionalGeneration", "kimi_k3", "kimi_linear"};
}

void set_llama(ordered_json& config, const CheckpointSizes& s) {
  set_common(config, s, 1e-5);
  config["head_dim"] = s.head_dim;
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
  config["rope_theta"] = 10000.0;
  config["rope_scaling"] = nullptr;
}

void set_text_model(ordered_json& config, CheckpointArch arch, const CheckpointSizes& sizes) {
  if (is_llama(arch)) return set_llama(config, sizes);
  if (is_kimi_linear_kind(arch)) return set_kimi_linear(config, arch, sizes);
  set_deepseek(config, arch, sizes);
}

}  // namespace

ordered_json random_config_json(CheckpointArch arch, const CheckpointSizes& sizes, DType dtype) {
  const ClassNames names = class_names(arch);
  ordered_json config = {{"architectures", {names.architecture}}, {"model_type", names.model_type}};
  config["torch_dtype"] = torch_dtype(dtype);
  if (names.text_model_type == nullptr) {
    set_text_model(config, arch, sizes);
    return config;
  }
  config["bos_token_id"] = SmallTokenizer::kBosId;
  config["eos_token_id"] = SmallTokenizer::kEosId;
  config["tie_word_embeddings"] = false;
  ordered_json text = {{"model_type", names.text_model_type}, {"torch_dtype", torch_dtype(dtype)}};
  if (arch == CheckpointArch::kKimiK25) text["architectures"] = {"DeepseekV3ForCausalLM"};
  set_text_model(text, arch, sizes);
  config["text_config"] = std::move(text);
  if (sizes.vision_layers > 0) config["vision_config"] = vision_config(arch, sizes);
  return config;
}

}  // namespace baton::weights
