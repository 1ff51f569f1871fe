// Published names to llama.cpp's (gguf-py's tensor_mapping.py and constants.py).
#include <array>
#include <charconv>

#include "base/check.h"
#include "models/deepseek/deepseek_tensors.h"

namespace baton::models {
namespace {

struct Pair {
  std::string_view published, gguf;
};

constexpr std::array<Pair, 4> kModel = {{
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.output_attn_res", "output_res_score.weight"},
}};

// Of a layer. Experts are one tensor there, named without their number.
constexpr std::array<Pair, 43> kLayer = {{
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attention_res", "attn_res_score.weight"},
    {"mlp_res", "ffn_res_score.weight"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.kv_b_proj.key.weight", "attn_k_b.weight"},
    {"self_attn.kv_b_proj.value.weight", "attn_v_b.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.g_proj.weight", "attn_gate.weight"},
    {"kda.g_proj.weight", "ssm_g.weight"},
    {"self_attn.g_a_proj.weight", "ssm_g_a.weight"},
    {"self_attn.g_b_proj.weight", "ssm_g_b.weight"},
    {"self_attn.f_a_proj.weight", "ssm_f_a.weight"},
    {"self_attn.f_b_proj.weight", "ssm_f_b.weight"},
    {"self_attn.b_proj.weight", "ssm_beta.weight"},
    {"self_attn.o_norm.weight", "ssm_norm.weight"},
    {"self_attn.q_conv1d.weight", "ssm_conv1d_q.weight"},
    {"self_attn.k_conv1d.weight", "ssm_conv1d_k.weight"},
    {"self_attn.v_conv1d.weight", "ssm_conv1d_v.weight"},
    {"self_attn.A_log", "ssm_a"},
    {"self_attn.dt_bias", "ssm_dt.bias"},
    {"self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
    {"self_attn.indexer.wk.weight", "indexer.attn_k.weight"},
    {"self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"},
    {"self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"},
    {"self_attn.indexer.weights_proj.weight", "indexer.proj.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.routed_expert_down_proj.weight", "ffn_routed_down.weight"},
    {"mlp.routed_expert_norm.weight", "ffn_routed_norm.weight"},
    {"mlp.routed_expert_up_proj.weight", "ffn_routed_up.weight"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
}};
constexpr std::array<Pair, 4> kExperts = {{
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
    {"mlp.experts.gate_proj.weight", "ffn_gate_exps.weight"},
    {"mlp.experts.up_proj.weight", "ffn_up_exps.weight"},
    {"mlp.experts.down_proj.weight", "ffn_down_exps.weight"},
}};

template <size_t kCount>
std::string_view look_up(const std::array<Pair, kCount>& table, std::string_view published) {
  for (const Pair& pair : table) {
    if (pair.published == published) return pair.gguf;
  }
  return {};
}

}  // namespace

std::string DeepseekNames::file(const std::string& published) const {
  if (!gguf) return published;
  constexpr std::string_view kLayers = "model.layers.";
  if (!published.starts_with(kLayers)) {
    const std::string_view name = look_up(kModel, published);
    BATON_CHECK(!name.empty(), "{}", published);
    return std::string(name);
  }
  const size_t dot = published.find('.', kLayers.size());
  const std::string number = published.substr(kLayers.size(), dot - kLayers.size());
  size_t layer = 0;
  std::from_chars(number.data(), number.data() + number.size(), layer);
  std::string part = published.substr(dot + 1);
  if (part == "self_attn.g_proj.weight" && kda_layers[layer]) part = "kda.g_proj.weight";
  std::string_view name = look_up(kLayer, part);
  if (name.empty()) name = look_up(kExperts, part);
  BATON_CHECK(!name.empty(), "{}", published);
  return fmt::format("blk.{}.{}", number, name);
}

}  // namespace baton::models
