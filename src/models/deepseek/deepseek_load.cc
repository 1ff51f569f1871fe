// From a checkpoint to a DeepseekModel: configuration, table of tensors, identity, then the weights one by one.
#include <cmath>

#include "models/deepseek/deepseek_model.h"
#include "models/deepseek/deepseek_tensors.h"
#include "models/fingerprint.h"
#include "models/weight_loader.h"

namespace baton::models {

class DeepseekModel::Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const DeepseekConfig& config, DeepseekNames names,
         const LoadOptions& options, ComputePool& pool)
      : config_(config), names_(std::move(names)), loader_(checkpoint, options, pool) {}

  Result<void> fill(DeepseekModel& model) {
    const std::string embedding = names_.root + "embed_tokens.weight";
    if (!config_.tied_embeddings) {
      BATON_TRY_ASSIGN(model.embedding_, loader_.matrix(names_.file(embedding)));
    }
    BATON_TRY_ASSIGN(model.lm_head_,
                     loader_.matrix(names_.file(config_.tied_embeddings ? embedding : names_.head + ".weight")));
    BATON_TRY_ASSIGN(model.final_norm_, values(names_.root + "norm.weight"));
    if (config_.residual_block != 0) {
      BATON_TRY_ASSIGN(model.final_residual_, residual(names_.root + "output_attn_res"));
    }
    model.layers_.resize(config_.layers.size());
    for (int i = 0; i < static_cast<int>(config_.layers.size()); ++i) BATON_TRY(fill_layer(i, model.layers_[i]));
    place_in_cache(model.layers_);
    model.weight_bytes_ = loader_.bytes_held();
    return {};
  }

 private:
  Result<void> fill_layer(int i, Layer& layer) {
    const std::string name = names_.layer(i);
    const DeepseekLayer& kind = config_.layers[i];
    BATON_TRY_ASSIGN(layer.attention_norm, values(name + "input_layernorm.weight"));
    BATON_TRY_ASSIGN(layer.ffn_norm, values(name + "post_attention_layernorm.weight"));
    if (config_.residual_block != 0) {
      BATON_TRY_ASSIGN(layer.attention_residual, residual(name + "self_attention_res"));
      BATON_TRY_ASSIGN(layer.ffn_residual, residual(name + "mlp_res"));
    }
    if (kind.kda) {
      BATON_TRY_ASSIGN(layer.kda, kda(names_.attention(i)));
    } else {
      BATON_TRY_ASSIGN(layer.mla, mla(names_.attention(i)));
    }
    if (kind.indexer == IndexerRole::kOwn) {
      BATON_TRY_ASSIGN(layer.indexer, indexer(names_.attention(i) + "indexer."));
    }
    if (kind.moe) {
      BATON_TRY_ASSIGN(layer.moe, moe(i));
    } else {
      BATON_TRY_ASSIGN(layer.mlp, mlp(name + "mlp."));
    }
    return {};
  }

  // Which entry of the cache, or which layer of the recurrent state, a layer has.
  void place_in_cache(std::vector<Layer>& layers) const {
    int entries = 0, states = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (config_.layers[i].kda) {
        layers[i].state_layer = states++;
        continue;
      }
      layers[i].latent_entry = entries++;
      if (config_.layers[i].indexer == IndexerRole::kOwn) layers[i].index_entry = entries++;
    }
  }

  Result<std::vector<float>> values(const std::string& published) { return loader_.vector(names_.file(published)); }

  Result<Linear> linear(const std::string& base) {
    BATON_TRY_ASSIGN(auto weight, loader_.matrix(names_.file(base + ".weight")));
    return Linear{.weight = std::move(weight), .bias = {}};
  }
  Result<Linear> finite_linear(const std::string& base) {
    BATON_TRY_ASSIGN(auto weight, loader_.finite_matrix(names_.file(base + ".weight")));
    return Linear{.weight = std::move(weight), .bias = {}};
  }
  Result<Linear> tree_linear(const std::string& base, int64_t unit) {
    BATON_TRY_ASSIGN(auto weight, loader_.tree_matrix(names_.file(base + ".weight"), unit));
    return Linear{.weight = std::move(weight), .bias = {}};
  }
  Result<Linear> float_linear(const std::string& base) {
    BATON_TRY_ASSIGN(auto weight, loader_.float_matrix(names_.file(base + ".weight")));
    return Linear{.weight = std::move(weight), .bias = {}};
  }

  Result<AttnResWeights> residual(const std::string& base) {
    if (names_.gguf) {
      AttnResWeights weights;
      BATON_TRY_ASSIGN(weights.weight, values(base));  // the product already
      return weights;
    }
    BATON_TRY_ASSIGN(const auto projection, values(base + "_proj.weight"));
    BATON_TRY_ASSIGN(const auto norm, values(base + "_norm.weight"));
    return AttnResWeights::make(norm, projection);
  }

  Result<MlaWeights> mla(const std::string& name) {
    const MlaConfig& config = config_.mla;
    MlaWeights weights;
    if (config.q_lora_rank != 0) {
      BATON_TRY_ASSIGN(weights.q_a, linear(name + "q_a_proj"));
      BATON_TRY_ASSIGN(weights.q_a_norm, values(name + "q_a_layernorm.weight"));
    }
    BATON_TRY_ASSIGN(weights.q_b, linear(name + (config.q_lora_rank != 0 ? "q_b_proj" : "q_proj")));
    BATON_TRY_ASSIGN(weights.kv_a, linear(name + "kv_a_proj_with_mqa"));
    BATON_TRY_ASSIGN(weights.kv_a_norm, values(name + "kv_a_layernorm.weight"));
    BATON_TRY(split_kv_b(name + "kv_b_proj.weight", weights));
    if (config.output_gate) {
      BATON_TRY_ASSIGN(weights.gate, linear(name + "g_proj"));
    }
    BATON_TRY_ASSIGN(weights.o, tree_linear(name + "o_proj", config.value_dim));
    return weights;
  }

  // kv_b's rows are, head by head, nope rows that make keys and value rows that make values. The absorbed form needs
  // the first ones transposed; both are kept as floats of the model's own width, since a transposed matrix of another
  // format would need other scales (docs/decisions).
  Result<void> split_kv_b(const std::string& base, MlaWeights& weights) {
    const MlaConfig& m = config_.mla;
    const int64_t rank = m.kv_lora_rank;
    if (names_.gguf) return read_kv_b(base, weights);
    BATON_TRY_ASSIGN(const tensor::DType dtype, loader_.dense_dtype(base));
    BATON_TRY_ASSIGN(weights.key_up, loader_.reserve_floats(base, m.heads, rank, m.nope_dim, dtype));
    BATON_TRY_ASSIGN(weights.value_up, loader_.reserve_floats(base, m.heads, m.value_dim, rank, dtype));
    std::vector<float> transposed(static_cast<size_t>(rank * m.nope_dim));
    for (int64_t h = 0; h < m.heads; ++h) {
      const int64_t first = h * (m.nope_dim + m.value_dim);
      BATON_TRY_ASSIGN(const auto rows, loader_.dense_rows(base, first, m.nope_dim + m.value_dim));
      for (int64_t n = 0; n < m.nope_dim; ++n) {
        for (int64_t r = 0; r < rank; ++r) transposed[r * m.nope_dim + n] = rows[n * rank + r];
      }
      BATON_TRY(loader_.fill_floats(transposed, weights.key_up[h]));
      const auto values = std::span(rows).subspan(static_cast<size_t>(m.nope_dim * rank));
      BATON_TRY(loader_.fill_floats(values, weights.value_up[h]));
    }
    return {};
  }

  // GGUF files hold each head's two matrices, the keys' transposed already: they keep their format.
  Result<void> read_kv_b(const std::string& base, MlaWeights& weights) {
    const MlaConfig& m = config_.mla;
    const std::string name = base.substr(0, base.size() - std::string_view("weight").size());
    BATON_TRY_ASSIGN(weights.key_up,
                     loader_.matrices(slices(names_.file(name + "key.weight"), m.heads, m.kv_lora_rank)));
    BATON_TRY_ASSIGN(weights.value_up,
                     loader_.matrices(slices(names_.file(name + "value.weight"), m.heads, m.value_dim)));
    return {};
  }

  // A tensor [count, rows, in] as `count` matrices.
  static std::vector<MatrixPart> slices(const std::string& name, int64_t count, int64_t rows) {
    std::vector<MatrixPart> parts;
    for (int64_t i = 0; i < count; ++i) parts.push_back({.name = name, .begin = i * rows, .count = rows});
    return parts;
  }

  Result<KdaWeights> kda(const std::string& name) {
    const KdaConfig& config = *config_.kda;
    KdaWeights weights;
    BATON_TRY_ASSIGN(weights.q, linear(name + "q_proj"));
    BATON_TRY_ASSIGN(weights.k, linear(name + "k_proj"));
    BATON_TRY_ASSIGN(weights.v, linear(name + "v_proj"));
    BATON_TRY_ASSIGN(weights.q_conv, convolution(name + "q_conv1d.weight"));
    BATON_TRY_ASSIGN(weights.k_conv, convolution(name + "k_conv1d.weight"));
    BATON_TRY_ASSIGN(weights.v_conv, convolution(name + "v_conv1d.weight"));
    BATON_TRY_ASSIGN(weights.a_log, values(name + "A_log"));
    if (names_.gguf) {
      for (float& a : weights.a_log) a = std::log(-a);  // the file holds -exp(A_log)
    }
    BATON_TRY_ASSIGN(weights.dt_bias, values(name + "dt_bias"));
    BATON_TRY_ASSIGN(weights.f_a, linear(name + "f_a_proj"));
    BATON_TRY_ASSIGN(weights.f_b, linear(name + "f_b_proj"));
    BATON_TRY_ASSIGN(weights.beta, linear(name + "b_proj"));
    if (config.full_rank_gate) {
      BATON_TRY_ASSIGN(weights.gate, linear(name + "g_proj"));
    } else {
      BATON_TRY_ASSIGN(weights.gate_a, linear(name + "g_a_proj"));
      BATON_TRY_ASSIGN(weights.gate, linear(name + "g_b_proj"));
    }
    BATON_TRY_ASSIGN(weights.o_norm, values(name + "o_norm.weight"));
    BATON_TRY_ASSIGN(weights.o, tree_linear(name + "o_proj", config.head_dim));
    return weights;
  }

  Result<std::vector<float>> convolution(const std::string& name) {
    BATON_TRY_ASSIGN(const auto values, values(name));
    const KdaConfig& config = *config_.kda;
    std::vector<float> transposed(values.size());
    kernels::transpose_conv(values.data(), int64_t{config.heads} * config.head_dim, config.conv_width,
                            transposed.data());
    return transposed;
  }

  Result<IndexerWeights> indexer(const std::string& name) {
    const IndexKeyNorm norm = config_.indexer->key_norm;
    IndexerWeights weights;
    BATON_TRY_ASSIGN(weights.q_b, finite_linear(name + "wq_b"));
    BATON_TRY_ASSIGN(weights.k, finite_linear(name + "wk"));
    if (norm != IndexKeyNorm::kNone) {
      BATON_TRY_ASSIGN(weights.k_norm, values(name + "k_norm.weight"));
    }
    if (norm == IndexKeyNorm::kLayer) {
      BATON_TRY_ASSIGN(weights.k_norm_bias, values(name + "k_norm.bias"));
    }
    BATON_TRY_ASSIGN(weights.head_weights, float_linear(name + "weights_proj"));
    if (config_.indexer->pool > 1) {
      const std::string gate = name + "index_kpool_compress_gate";
      BATON_TRY_ASSIGN(const auto rows, values(gate));
      BATON_TRY_ASSIGN(auto packed,
                       loader_.reserve_floats(gate, 1, config_.indexer->dim, config_.hidden, tensor::DType::kF32));
      BATON_TRY(loader_.fill_floats(rows, packed.front()));
      weights.pool_gate = Linear{.weight = std::move(packed.front()), .bias = {}};
      BATON_TRY_ASSIGN(weights.pool_bias, values(name + "index_kpool_compress_ape"));
    }
    return weights;
  }

  Result<MlpWeights> mlp(const std::string& name) {
    return gated(name + "gate_proj", name + "up_proj", name + "down_proj");
  }
  Result<MlpWeights> gated(const std::string& gate, const std::string& up, const std::string& down) {
    MlpWeights weights;
    BATON_TRY_ASSIGN(weights.gate, linear(gate));
    BATON_TRY_ASSIGN(weights.up, linear(up));
    BATON_TRY_ASSIGN(weights.down, tree_linear(down, 1));
    return weights;
  }

  std::vector<MatrixPart> experts(int layer, const std::string& part, int64_t rows) const {
    const int64_t count = config_.moe->experts;
    if (names_.gguf) return slices(names_.file(names_.experts(layer) + "experts." + part + ".weight"), count, rows);
    std::vector<MatrixPart> all;
    for (int64_t e = 0; e < count; ++e) all.push_back({.name = names_.expert(layer, e) + part + ".weight"});
    return all;
  }

  Result<MoeWeights> moe(int i) {
    const MoeConfig& config = *config_.moe;
    const std::string name = names_.experts(i);
    MoeWeights weights;
    BATON_TRY_ASSIGN(weights.router, float_linear(name + "gate"));
    if (config.correction_bias) {
      BATON_TRY_ASSIGN(weights.correction, values(name + "gate.e_score_correction_bias"));
    }
    if (config.latent != 0) {
      BATON_TRY_ASSIGN(weights.latent_down, linear(name + "routed_expert_down_proj"));
      if (config.latent_norm) {
        BATON_TRY_ASSIGN(weights.latent_norm, values(name + "routed_expert_norm.weight"));
      }
      BATON_TRY_ASSIGN(weights.latent_up, linear(name + "routed_expert_up_proj"));
    }
    const int64_t width = config.latent != 0 ? config.latent : config_.hidden;
    // An expert is never sliced over ranks (rule 5): its K is summed in sequence.
    BATON_TRY_ASSIGN(weights.gate, loader_.matrices(experts(i, names_.gate, config.intermediate)));
    BATON_TRY_ASSIGN(weights.up, loader_.matrices(experts(i, names_.up, config.intermediate)));
    BATON_TRY_ASSIGN(weights.down, loader_.matrices(experts(i, names_.down, width)));
    if (config.shared_experts != 0) {
      BATON_TRY_ASSIGN(weights.shared, mlp(name + "shared_experts."));
    }
    return weights;
  }

  const DeepseekConfig& config_;
  const DeepseekNames names_;
  WeightLoader loader_;
};

Result<std::unique_ptr<Model>> DeepseekModel::load(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                                                   ComputePool& pool) {
  BATON_TRY_ASSIGN(DeepseekConfig config, read_deepseek_config(checkpoint));
  if (options.max_positions > config.max_positions) {
    return fail(Code::kOutOfRange, "{}: {} positions were asked for, the checkpoint was trained for {}",
                checkpoint.path(), options.max_positions, config.max_positions);
  }
  auto names = DeepseekNames::of(checkpoint, config);
  BATON_TRY(deepseek_tensor_table(config, names).check(checkpoint, options.quantization));

  auto model = std::make_unique<DeepseekModel>();
  // As with Llama: the table's first rows stand for all positions in the model's identity.
  constexpr int kIdentityPositions = 256;
  model->fingerprint_ = model_fingerprint(checkpoint, config.canonical_text(),
                                          rope_table(config.rope, std::min(kIdentityPositions, config.max_positions)));
  if (options.max_positions > 0) config.max_positions = options.max_positions;
  model->config_ = config;
  model->isa_ = options.isa;
  model->set_shapes();
  if (config.rope.rope_dim != 0) model->rope_ = rope_table(config.rope, config.max_positions);
  BATON_TRY(Loader(checkpoint, model->config_, std::move(names), options, pool).fill(*model));
  return model;
}

}  // namespace baton::models
