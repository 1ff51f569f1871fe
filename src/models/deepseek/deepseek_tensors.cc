#include "models/deepseek/deepseek_tensors.h"

#include <algorithm>

namespace baton::models {
namespace {

// Fills a table for one layer after the other.
class TableWriter {
 public:
  TableWriter(const DeepseekConfig& config, const DeepseekNames& names) : config_(config), names_(names) {}

  TensorTable take() {
    matrix(names_.root + "embed_tokens", config_.vocab, config_.hidden);
    vector(names_.root + "norm", config_.hidden);
    if (!config_.tied_embeddings) matrix(names_.head, config_.vocab, config_.hidden);
    if (config_.residual_block != 0) residual(names_.root + "output_attn_res");
    const int count = static_cast<int>(config_.layers.size());
    for (int i = 0; i < count; ++i) layer(i);
    ignore(count);
    return std::move(table_);
  }

 private:
  void exact(const std::string& name, std::vector<int64_t> shape) {
    table_.require(names_.file(name), std::move(shape));
  }
  void vector(const std::string& base, int64_t size) { exact(base + ".weight", {size}); }
  void matrix(const std::string& base, int64_t out, int64_t in) {
    table_.require_matrix(names_.file(base + ".weight"), {out, in});
  }
  void residual(const std::string& base) {
    // A GGUF file holds the product of the two.
    if (names_.gguf) return exact(base, {config_.hidden});
    table_.require(base + "_proj.weight", {1, config_.hidden});
    vector(base + "_norm", config_.hidden);
  }

  void layer(int i) {
    const std::string name = names_.layer(i);
    vector(name + "input_layernorm", config_.hidden);
    vector(name + "post_attention_layernorm", config_.hidden);
    if (config_.residual_block != 0) {
      residual(name + "self_attention_res");
      residual(name + "mlp_res");
    }
    const DeepseekLayer& kind = config_.layers[i];
    if (kind.kda) {
      kda(names_.attention(i));
    } else {
      mla(names_.attention(i));
    }
    if (kind.indexer == IndexerRole::kOwn) indexer(names_.attention(i) + "indexer.");
    if (kind.moe) {
      moe(i);
    } else {
      ffn(name + "mlp.", config_.intermediate);
    }
  }

  void mla(const std::string& name) {
    const MlaConfig& m = config_.mla;
    const int64_t heads = m.heads;
    if (m.q_lora_rank != 0) {
      matrix(name + "q_a_proj", m.q_lora_rank, config_.hidden);
      vector(name + "q_a_layernorm", m.q_lora_rank);
      matrix(name + "q_b_proj", heads * m.query_dim(), m.q_lora_rank);
    } else {
      matrix(name + "q_proj", heads * m.query_dim(), config_.hidden);
    }
    matrix(name + "kv_a_proj_with_mqa", m.kv_lora_rank + m.rope_dim, config_.hidden);
    vector(name + "kv_a_layernorm", m.kv_lora_rank);
    if (names_.gguf) {
      exact(name + "kv_b_proj.key.weight", {heads, m.kv_lora_rank, m.nope_dim});
      exact(name + "kv_b_proj.value.weight", {heads, m.value_dim, m.kv_lora_rank});
    } else {
      matrix(name + "kv_b_proj", heads * (m.nope_dim + m.value_dim), m.kv_lora_rank);
    }
    if (m.output_gate) matrix(name + "g_proj", heads * m.value_dim, config_.hidden);
    matrix(name + "o_proj", config_.hidden, heads * m.value_dim);
  }

  void kda(const std::string& name) {
    const KdaConfig& k = *config_.kda;
    const int64_t heads = k.heads, features = heads * k.head_dim;
    for (const char* part : {"q", "k", "v"}) {
      matrix(name + part + "_proj", features, config_.hidden);
      const std::vector<int64_t> published = {features, 1, k.conv_width}, gguf = {1, features, 1, k.conv_width};
      exact(fmt::format("{}{}_conv1d.weight", name, part), names_.gguf ? gguf : published);
    }
    table_.require_padded(names_.file(name + "A_log"), heads);
    exact(name + "dt_bias", {features});
    matrix(name + "f_a_proj", k.head_dim, config_.hidden);
    matrix(name + "f_b_proj", features, k.head_dim);
    matrix(name + "b_proj", heads, config_.hidden);
    if (k.full_rank_gate) {
      matrix(name + "g_proj", features, config_.hidden);
    } else {
      matrix(name + "g_a_proj", k.head_dim, config_.hidden);
      matrix(name + "g_b_proj", features, k.head_dim);
    }
    vector(name + "o_norm", k.head_dim);
    matrix(name + "o_proj", config_.hidden, features);
  }

  void indexer(const std::string& name) {
    const IndexerConfig& x = *config_.indexer;
    matrix(name + "wq_b", int64_t{x.heads} * x.dim, config_.mla.q_lora_rank);
    matrix(name + "wk", x.dim, config_.hidden);
    if (x.key_norm != IndexKeyNorm::kNone) vector(name + "k_norm", x.dim);
    if (x.key_norm == IndexKeyNorm::kLayer) exact(name + "k_norm.bias", {x.dim});
    matrix(name + "weights_proj", x.heads, config_.hidden);
    if (x.pool == 1) return;
    exact(name + "index_kpool_compress_gate", {x.dim, config_.hidden});
    exact(name + "index_kpool_compress_ape", {x.pool, x.dim});
  }

  void ffn(const std::string& name, int64_t intermediate) {
    matrix(name + "gate_proj", intermediate, config_.hidden);
    matrix(name + "up_proj", intermediate, config_.hidden);
    matrix(name + "down_proj", config_.hidden, intermediate);
  }

  void moe(int i) {
    const MoeConfig& m = *config_.moe;
    const std::string name = names_.experts(i);
    const int64_t width = m.latent != 0 ? m.latent : config_.hidden;
    matrix(name + "gate", m.experts, config_.hidden);
    if (m.correction_bias) exact(name + "gate.e_score_correction_bias", {m.experts});
    if (m.latent != 0) {
      matrix(name + "routed_expert_down_proj", m.latent, config_.hidden);
      if (m.latent_norm) vector(name + "routed_expert_norm", m.latent);
      matrix(name + "routed_expert_up_proj", config_.hidden, m.latent);
    }
    if (names_.gguf) {
      exact(name + "experts.gate_proj.weight", {m.experts, m.intermediate, width});
      exact(name + "experts.up_proj.weight", {m.experts, m.intermediate, width});
      exact(name + "experts.down_proj.weight", {m.experts, width, m.intermediate});
    }
    for (int64_t e = 0; !names_.gguf && e < m.experts; ++e) {
      const std::string expert = names_.expert(i, e);
      matrix(expert + names_.gate, m.intermediate, width);
      matrix(expert + names_.up, m.intermediate, width);
      matrix(expert + names_.down, width, m.intermediate);
    }
    if (m.shared_experts != 0) ffn(name + "shared_experts.", m.intermediate * m.shared_experts);
  }

  void ignore(int layer_count) {
    if (names_.gguf) {
      table_.ignore("rope_freqs.weight");
      for (int i = 0; i < config_.draft_layers; ++i) table_.ignore(fmt::format("blk.{}.*", layer_count + i));
      return;
    }
    table_.ignore(names_.root + "layers.*.self_attn.rotary_emb.inv_freq");
    if (config_.tied_embeddings) table_.ignore(names_.head + ".weight");
    // Draft layers behind the last, and what images need.
    for (int i = 0; i < config_.draft_layers; ++i) table_.ignore(names_.layer(layer_count + i) + "*");
    for (const char* vision : {"vision_tower.*", "mm_projector.*", "multi_modal_projector.*"}) table_.ignore(vision);
  }

  const DeepseekConfig& config_;
  const DeepseekNames& names_;
  TensorTable table_;
};

bool has_prefix(const weights::Checkpoint& checkpoint, const std::string& prefix) {
  const auto it = checkpoint.tensors().lower_bound(prefix);
  return it != checkpoint.tensors().end() && it->first.starts_with(prefix);
}

}  // namespace

DeepseekNames DeepseekNames::of(const weights::Checkpoint& checkpoint, const DeepseekConfig& config) {
  DeepseekNames names;
  for (const DeepseekLayer& layer : config.layers) names.kda_layers.push_back(layer.kda);
  names.gguf = checkpoint.format() == weights::Checkpoint::Format::kGguf;
  if (names.gguf) return names;
  if (has_prefix(checkpoint, "language_model.")) {
    names.root = "language_model.model.";
    names.head = "language_model.lm_head";
  }
  const auto first = std::ranges::find(config.layers, true, &DeepseekLayer::moe);
  if (first == config.layers.end()) return names;
  const std::string layer = names.layer(static_cast<int>(first - config.layers.begin()));
  if (has_prefix(checkpoint, layer + "block_sparse_moe.")) {
    names.moe = "block_sparse_moe";
    names.gate = "w1";
    names.up = "w3";
    names.down = "w2";
  }
  return names;
}

TensorTable deepseek_tensor_table(const DeepseekConfig& config, const DeepseekNames& names) {
  return TableWriter(config, names).take();
}

}  // namespace baton::models
