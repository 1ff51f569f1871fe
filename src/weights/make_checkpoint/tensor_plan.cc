#include "weights/make_checkpoint/tensor_plan.h"

#include <fmt/format.h>

#include "weights/make_checkpoint/tensor_planner.h"

namespace baton::weights {
namespace {

using tensor::DType;

// Text models inside multi-modal classes carry this prefix.
std::string text_prefix(CheckpointArch arch) { return has_vision(arch) ? "language_model." : ""; }

}  // namespace

std::vector<PlannedTensor> TensorPlanner::plan() {
  const std::string text = text_prefix(arch_);
  model_ = text + "model.";
  // The head sees normed activations: this deviation gives logits of about 2.5.
  const float head = 2.5f / std::sqrt(static_cast<float>(s_.hidden));
  add(model_ + "embed_tokens.weight", dtype_, {s_.vocab, s_.hidden}, 1.0f);
  for (int layer = 0; layer < s_.layers; ++layer) decoder_layer(layer);
  for (int layer = 0; layer < s_.mtp_layers; ++layer) mtp_layer(s_.layers + layer);
  if (is_k3_kind(arch_)) attn_res(model_ + "output_attn_res_proj", model_ + "output_attn_res_norm");
  norm(model_ + "norm", s_.hidden);
  add(text + "lm_head.weight", dtype_, {s_.vocab, s_.hidden}, head);
  if (s_.vision_layers > 0) vision();
  return std::move(tensors_);
}

void TensorPlanner::decoder_layer(int layer) {
  const std::string prefix = fmt::format("{}layers.{}.", model_, layer);
  const std::string attention = prefix + "self_attn.";
  norm(prefix + "input_layernorm", s_.hidden);
  if (is_llama(arch_)) {
    llama_attention(attention);
  } else if (is_kimi_linear_kind(arch_) && !is_full_attention(s_, layer)) {
    kda(attention);
  } else {
    mla(attention);
  }
  if (is_k3_kind(arch_)) {
    attn_res(prefix + "self_attention_res_proj", prefix + "self_attention_res_norm");
    attn_res(prefix + "mlp_res_proj", prefix + "mlp_res_norm");
  }
  norm(prefix + "post_attention_layernorm", s_.hidden);
  feed_forward(prefix, layer);
}

// DeepSeek's: a decoder layer after the last, with its own norms and projection, and copies of embedding and head.
void TensorPlanner::mtp_layer(int layer) {
  decoder_layer(layer);
  const std::string prefix = fmt::format("{}layers.{}.", model_, layer);
  norm(prefix + "enorm", s_.hidden);
  norm(prefix + "hnorm", s_.hidden);
  linear(prefix + "eh_proj", s_.hidden, int64_t{2} * s_.hidden);
  add(prefix + "embed_tokens.weight", dtype_, {s_.vocab, s_.hidden}, 1.0f);
  norm(prefix + "shared_head.norm", s_.hidden);
  add(prefix + "shared_head.head.weight", dtype_, {s_.vocab, s_.hidden},
      2.5f / std::sqrt(static_cast<float>(s_.hidden)));
}

void TensorPlanner::attn_res(const std::string& projection, const std::string& norm_name) {
  linear(projection, 1, s_.hidden);  // scores of deviation 1 between the sources
  norm(norm_name, s_.hidden);
}

void TensorPlanner::feed_forward(const std::string& prefix, int layer) {
  if (is_llama(arch_) || layer < s_.dense_layers) {
    mlp(prefix + "mlp.", s_.intermediate, 1.5f);
    return;
  }
  experts(prefix + (is_kimi_linear_kind(arch_) ? "block_sparse_moe." : "mlp."));
}

void TensorPlanner::mlp(const std::string& prefix, int64_t width, float down_gain) {
  linear(prefix + "gate_proj", width, s_.hidden);
  linear(prefix + "up_proj", width, s_.hidden);
  linear(prefix + "down_proj", s_.hidden, width, down_gain);
}

void TensorPlanner::experts(const std::string& prefix) {
  linear(prefix + "gate", s_.experts, s_.hidden);  // router logits of deviation 1
  add(prefix + "gate.e_score_correction_bias", DType::kF32, {s_.experts}, 0.05f);
  const bool latent = s_.routed_hidden > 0;
  const int64_t width = latent ? s_.routed_hidden : s_.hidden;
  if (latent) {
    linear(prefix + "routed_expert_down_proj", width, s_.hidden);
    norm(prefix + "routed_expert_norm", width);
    linear(prefix + "routed_expert_up_proj", s_.hidden, width);
  }
  const bool kimi_linear_names = is_kimi_linear_kind(arch_);
  const char* gate = kimi_linear_names ? "w1" : "gate_proj";
  const char* up = kimi_linear_names ? "w3" : "up_proj";
  const char* down = kimi_linear_names ? "w2" : "down_proj";
  for (int expert = 0; expert < s_.experts; ++expert) {
    const std::string at = fmt::format("{}experts.{}.", prefix, expert);
    linear(at + gate, s_.moe_intermediate, width);
    linear(at + up, s_.moe_intermediate, width);
    linear(at + down, width, s_.moe_intermediate, 1.5f);
  }
  if (s_.shared_experts > 0) {
    mlp(prefix + "shared_experts.", int64_t{s_.shared_experts} * s_.moe_intermediate, 1.0f);
  }
}

std::vector<PlannedTensor> plan_tensors(CheckpointArch arch, const CheckpointSizes& sizes, DType dtype) {
  return TensorPlanner(arch, sizes, dtype).plan();
}

}  // namespace baton::weights
