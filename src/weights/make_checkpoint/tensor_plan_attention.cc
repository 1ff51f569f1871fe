// The tensors of attention: Llama's, MLA with its indexer, and KDA.
#include <bit>
#include <cmath>

#include "weights/make_checkpoint/tensor_planner.h"

namespace baton::weights {

using tensor::DType;

double yarn_score_factor(const CheckpointSizes& sizes) {
  if (sizes.yarn_factor <= 1) return 1;
  const double mscale = 0.1 * std::log(static_cast<double>(sizes.yarn_factor)) + 1;
  return mscale * mscale;
}

void TensorPlanner::llama_attention(const std::string& prefix) {
  const int64_t q = int64_t{s_.heads} * s_.head_dim;
  const int64_t kv = int64_t{s_.kv_heads} * s_.head_dim;
  linear(prefix + "q_proj", q, s_.hidden, 1.5f);
  linear(prefix + "k_proj", kv, s_.hidden, 1.5f);
  linear(prefix + "v_proj", kv, s_.hidden);
  linear(prefix + "o_proj", s_.hidden, q);
}

void TensorPlanner::mla(const std::string& prefix) {
  const int64_t q = int64_t{s_.heads} * (s_.nope_dim + s_.rope_dim);
  const int64_t value = int64_t{s_.heads} * s_.v_dim;
  // Keys have deviation 1 (from the normed latent) or 1.5; queries make up for yarn's factor on scores.
  const auto query_gain = static_cast<float>(1.5 / yarn_score_factor(s_));
  if (s_.q_lora_rank > 0) {
    linear(prefix + "q_a_proj", s_.q_lora_rank, s_.hidden);
    norm(prefix + "q_a_layernorm", s_.q_lora_rank);
    linear(prefix + "q_b_proj", q, s_.q_lora_rank, query_gain);
  } else {
    linear(prefix + "q_proj", q, s_.hidden, query_gain);
  }
  linear(prefix + "kv_a_proj_with_mqa", int64_t{s_.kv_lora_rank} + s_.rope_dim, s_.hidden, 1.5f);
  norm(prefix + "kv_a_layernorm", s_.kv_lora_rank);
  linear(prefix + "kv_b_proj", int64_t{s_.heads} * (s_.nope_dim + s_.v_dim), s_.kv_lora_rank);
  if (is_k3_kind(arch_)) linear(prefix + "g_proj", value, s_.hidden);
  linear(prefix + "o_proj", s_.hidden, value, is_k3_kind(arch_) ? 2.0f : 1.0f);  // the gate halves what comes in
  if (has_indexer(arch_)) indexer(prefix + "indexer.");
}

void TensorPlanner::indexer(const std::string& prefix) {
  linear(prefix + "wq_b", int64_t{s_.index_heads} * s_.index_head_dim, s_.q_lora_rank);
  linear(prefix + "wk", s_.index_head_dim, s_.hidden);
  norm(prefix + "k_norm", s_.index_head_dim);
  add(prefix + "k_norm.bias", dtype_, {s_.index_head_dim}, 0.1f);
  linear(prefix + "weights_proj", s_.index_heads, s_.hidden);
}

void TensorPlanner::kda(const std::string& prefix) {
  const bool k3 = is_k3_kind(arch_);
  const int64_t width = int64_t{s_.linear_heads} * s_.linear_head_dim;
  const DType small = k3 ? DType::kF32 : dtype_;
  for (const char* name : {"q", "k", "v"}) linear(prefix + name + "_proj", width, s_.hidden);
  for (const char* name : {"q", "k", "v"}) {
    add(prefix + name + "_conv1d.weight", small, {width, 1, s_.conv_width},
        1.0f / std::sqrt(static_cast<float>(s_.conv_width)));
  }
  // Decays: softplus(dt_bias) or 5 sigmoid(dt_bias) around 0.05 to 0.25 a token, some channels far slower or faster.
  if (k3) {
    // Padded, as the published 96 heads are to 128: a reader must not take its size for the heads.
    add(prefix + "A_log", DType::kF32, {std::bit_ceil(static_cast<uint32_t>(s_.linear_heads) + 1)}, 0.3f);
  } else {
    add(prefix + "A_log", DType::kF32, {1, 1, s_.linear_heads, 1}, 0.3f);
  }
  add(prefix + "dt_bias", DType::kF32, {width}, 1.0f, -3.0f);
  linear(prefix + "f_a_proj", s_.linear_head_dim, s_.hidden);
  linear(prefix + "f_b_proj", width, s_.linear_head_dim);
  linear(prefix + "b_proj", s_.linear_heads, s_.hidden);
  if (k3) {
    linear(prefix + "g_proj", width, s_.hidden);
  } else {
    linear(prefix + "g_a_proj", s_.linear_head_dim, s_.hidden);
    linear(prefix + "g_b_proj", width, s_.linear_head_dim);
  }
  norm(prefix + "o_norm", s_.linear_head_dim, small);
  linear(prefix + "o_proj", s_.hidden, width, 2.0f);  // the gate halves what comes in
}

}  // namespace baton::weights
