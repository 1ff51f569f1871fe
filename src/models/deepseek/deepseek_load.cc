// From a checkpoint to a DeepseekModel: configuration, table of tensors, identity, then the weights one by one.
#include <algorithm>
#include <cmath>

#include "models/deepseek/deepseek_model.h"
#include "models/deepseek/deepseek_tensors.h"
#include "models/fingerprint.h"
#include "models/weight_loader.h"

namespace baton::models {

class DeepseekModel::Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const DeepseekConfig& config, DeepseekNames names,
         const RankShare& share, const LoadOptions& options, ComputePool& pool)
      : config_(config), names_(std::move(names)), share_(share), loader_(checkpoint, options, pool) {}

  Result<void> fill(DeepseekModel& model) {
    const std::string embedding = names_.root + "embed_tokens";
    const bool tied = config_.tied_embeddings, last = share_.last_stage();
    if (last) {
      BATON_TRY_ASSIGN(model.lm_head_, outputs(tied ? embedding : names_.head));
      BATON_TRY_ASSIGN(model.final_norm_, values(names_.root + "norm.weight"));
      if (config_.residual_block != 0) {
        BATON_TRY_ASSIGN(model.final_residual_, residual(names_.root + "output_attn_res"));
      }
    }
    if (share_.first_stage() && !(tied && last)) {
      BATON_TRY_ASSIGN(model.embedding_, outputs(embedding));
    }
    const int first = static_cast<int>(share_.layers().begin);
    model.layers_.resize(static_cast<size_t>(share_.layers().count()));
    for (size_t i = 0; i < model.layers_.size(); ++i) {
      BATON_TRY(fill_layer(first + static_cast<int>(i), model.layers_[i]));
    }
    place_in_cache(first, model.layers_);
    model.weight_bytes_ = loader_.bytes_held();
    loader_.complete();
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
      BATON_TRY_ASSIGN(layer.mlp, mlp(name + "mlp.", config_.intermediate));
    }
    return {};
  }

  // Which entry of the cache, or which layer of the recurrent state, a layer has.
  void place_in_cache(int first, std::vector<Layer>& layers) const {
    int entries = 0, states = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      const DeepseekLayer& kind = config_.layers[static_cast<size_t>(first) + i];
      if (kind.kda) {
        layers[i].state_layer = states++;
        continue;
      }
      layers[i].latent_entry = entries++;
      if (kind.indexer == IndexerRole::kOwn) layers[i].index_entry = entries++;
    }
  }

  Result<std::vector<float>> values(const std::string& published) { return loader_.vector(names_.file(published)); }

  static Linear held(kernels::PackedMatrix weight, int64_t first) {
    return {.weight = std::move(weight), .bias = {}, .first = first};
  }
  // Outputs that stay with the rank.
  Result<Linear> rows(const std::string& base, parallel::Share of) {
    BATON_TRY_ASSIGN(auto weight, loader_.matrix_rows(names_.file(base + ".weight"), of.begin, of.count()));
    return held(std::move(weight), 0);
  }
  Result<Linear> head_rows(const std::string& base, parallel::Share heads, int64_t per_head) {
    return rows(base, {heads.begin * per_head, heads.end * per_head});
  }
  // The rank's part of outputs that the team gathers.
  Result<parallel::Share> part(const std::string& name) {
    BATON_TRY_ASSIGN(const auto shape, loader_.matrix_shape(name));
    return share_.columns(shape.first);
  }
  Result<Linear> outputs(const std::string& base) {
    const std::string name = names_.file(base + ".weight");
    BATON_TRY_ASSIGN(const parallel::Share of, part(name));
    BATON_TRY_ASSIGN(auto weight, loader_.matrix_rows(name, of.begin, of.count()));
    return held(std::move(weight), of.begin);
  }
  Result<Linear> finite_outputs(const std::string& base) {
    const std::string name = names_.file(base + ".weight");
    BATON_TRY_ASSIGN(const parallel::Share of, part(name));
    BATON_TRY_ASSIGN(auto weight, loader_.finite_matrix_rows(name, of.begin, of.count()));
    return held(std::move(weight), of.begin);
  }
  Result<Linear> tree_outputs(const std::string& base, int64_t unit) {
    const std::string name = names_.file(base + ".weight");
    BATON_TRY_ASSIGN(const parallel::Share of, part(name));
    BATON_TRY_ASSIGN(auto weight, loader_.tree_matrix_rows(name, unit, of.begin, of.count()));
    return held(std::move(weight), of.begin);
  }
  Result<Linear> float_outputs(const std::string& base) {
    const std::string name = names_.file(base + ".weight");
    BATON_TRY_ASSIGN(const parallel::Share of, part(name));
    BATON_TRY_ASSIGN(auto weight, loader_.float_matrix_rows(name, of.begin, of.count()));
    return held(std::move(weight), of.begin);
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
    const parallel::Share heads = share_.heads(config.heads);
    MlaWeights weights;
    if (config.q_lora_rank != 0) {
      BATON_TRY_ASSIGN(weights.q_a, outputs(name + "q_a_proj"));
      BATON_TRY_ASSIGN(weights.q_a_norm, values(name + "q_a_layernorm.weight"));
    }
    BATON_TRY_ASSIGN(weights.q_b,
                     head_rows(name + (config.q_lora_rank != 0 ? "q_b_proj" : "q_proj"), heads, config.query_dim()));
    BATON_TRY_ASSIGN(weights.kv_a, outputs(name + "kv_a_proj_with_mqa"));
    BATON_TRY_ASSIGN(weights.kv_a_norm, values(name + "kv_a_layernorm.weight"));
    BATON_TRY(split_kv_b(name + "kv_b_proj.weight", weights));
    if (config.output_gate) {
      BATON_TRY_ASSIGN(weights.gate, head_rows(name + "g_proj", heads, config.value_dim));
    }
    BATON_TRY_ASSIGN(weights.o, tree_outputs(name + "o_proj", config.value_dim));
    return weights;
  }

  // kv_b's rows are, head by head, nope rows that make keys and value rows that make values. The absorbed form needs
  // the first ones transposed; both are kept as floats of the model's own width, since a transposed matrix of another
  // format would need other scales (docs/decisions).
  Result<void> split_kv_b(const std::string& base, MlaWeights& weights) {
    const MlaConfig& m = config_.mla;
    const int64_t rank = m.kv_lora_rank;
    if (names_.gguf) return read_kv_b(base, weights);
    const parallel::Share heads = share_.heads(m.heads);
    BATON_TRY_ASSIGN(const tensor::DType dtype, loader_.dense_dtype(base));
    BATON_TRY_ASSIGN(weights.key_up, loader_.reserve_floats(base, heads.count(), rank, m.nope_dim, dtype));
    BATON_TRY_ASSIGN(weights.value_up, loader_.reserve_floats(base, heads.count(), m.value_dim, rank, dtype));
    std::vector<float> transposed(static_cast<size_t>(rank * m.nope_dim));
    for (int64_t h = 0; h < heads.count(); ++h) {
      const int64_t first = (heads.begin + h) * (m.nope_dim + m.value_dim);
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
    const parallel::Share heads = share_.heads(m.heads);
    BATON_TRY_ASSIGN(weights.key_up, loader_.matrices(slices(names_.file(name + "key.weight"), heads, m.kv_lora_rank)));
    BATON_TRY_ASSIGN(weights.value_up,
                     loader_.matrices(slices(names_.file(name + "value.weight"), heads, m.value_dim)));
    return {};
  }

  // Of a tensor [count, rows, in], a matrix for each of `some`.
  static std::vector<MatrixPart> slices(const std::string& name, parallel::Share some, int64_t rows) {
    std::vector<MatrixPart> parts;
    for (int64_t i = some.begin; i < some.end; ++i) parts.push_back({.name = name, .begin = i * rows, .count = rows});
    return parts;
  }

  Result<KdaWeights> kda(const std::string& name) {
    const KdaConfig& config = *config_.kda;
    const parallel::Share heads = share_.heads(config.heads);
    KdaWeights weights;
    BATON_TRY_ASSIGN(weights.q, head_rows(name + "q_proj", heads, config.head_dim));
    BATON_TRY_ASSIGN(weights.k, head_rows(name + "k_proj", heads, config.head_dim));
    BATON_TRY_ASSIGN(weights.v, head_rows(name + "v_proj", heads, config.head_dim));
    BATON_TRY_ASSIGN(weights.q_conv, convolution(name + "q_conv1d.weight", heads));
    BATON_TRY_ASSIGN(weights.k_conv, convolution(name + "k_conv1d.weight", heads));
    BATON_TRY_ASSIGN(weights.v_conv, convolution(name + "v_conv1d.weight", heads));
    BATON_TRY_ASSIGN(weights.a_log, head_values(name + "A_log", heads, 1));
    if (names_.gguf) {
      for (float& a : weights.a_log) a = std::log(-a);  // the file holds -exp(A_log)
    }
    BATON_TRY_ASSIGN(weights.dt_bias, head_values(name + "dt_bias", heads, config.head_dim));
    BATON_TRY_ASSIGN(weights.f_a, outputs(name + "f_a_proj"));
    BATON_TRY_ASSIGN(weights.f_b, head_rows(name + "f_b_proj", heads, config.head_dim));
    BATON_TRY_ASSIGN(weights.beta, head_rows(name + "b_proj", heads, 1));
    if (config.full_rank_gate) {
      BATON_TRY_ASSIGN(weights.gate, head_rows(name + "g_proj", heads, config.head_dim));
    } else {
      BATON_TRY_ASSIGN(weights.gate_a, outputs(name + "g_a_proj"));
      BATON_TRY_ASSIGN(weights.gate, head_rows(name + "g_b_proj", heads, config.head_dim));
    }
    BATON_TRY_ASSIGN(weights.o_norm, values(name + "o_norm.weight"));
    BATON_TRY_ASSIGN(weights.o, tree_outputs(name + "o_proj", config.head_dim));
    return weights;
  }

  // Of a vector with per_head values for each head (and perhaps padding behind), those of `heads`.
  Result<std::vector<float>> head_values(const std::string& name, parallel::Share heads, int64_t per_head) {
    BATON_TRY_ASSIGN(const auto all, values(name));
    return std::vector(all.begin() + heads.begin * per_head, all.begin() + heads.end * per_head);
  }

  Result<std::vector<float>> convolution(const std::string& name, parallel::Share heads) {
    const KdaConfig& config = *config_.kda;
    BATON_TRY_ASSIGN(const auto own, head_values(name, heads, int64_t{config.head_dim} * config.conv_width));
    std::vector<float> transposed(own.size());
    kernels::transpose_conv(own.data(), heads.count() * config.head_dim, config.conv_width, transposed.data());
    return transposed;
  }

  Result<IndexerWeights> indexer(const std::string& name) {
    const IndexKeyNorm norm = config_.indexer->key_norm;
    IndexerWeights weights;
    BATON_TRY_ASSIGN(weights.q_b, finite_outputs(name + "wq_b"));
    BATON_TRY_ASSIGN(weights.k, finite_outputs(name + "wk"));
    if (norm != IndexKeyNorm::kNone) {
      BATON_TRY_ASSIGN(weights.k_norm, values(name + "k_norm.weight"));
    }
    if (norm == IndexKeyNorm::kLayer) {
      BATON_TRY_ASSIGN(weights.k_norm_bias, values(name + "k_norm.bias"));
    }
    BATON_TRY_ASSIGN(weights.head_weights, float_outputs(name + "weights_proj"));
    if (config_.indexer->pool > 1) {
      BATON_TRY_ASSIGN(weights.pool_gate, pool_gate(name + "index_kpool_compress_gate"));
      BATON_TRY_ASSIGN(weights.pool_bias, values(name + "index_kpool_compress_ape"));
    }
    return weights;
  }

  // A tensor that is no weight matrix by its name.
  Result<Linear> pool_gate(const std::string& name) {
    BATON_TRY_ASSIGN(const auto all, values(name));
    const parallel::Share of = share_.columns(config_.indexer->dim);
    if (of.count() == 0) return Linear();
    BATON_TRY_ASSIGN(auto packed, loader_.reserve_floats(name, 1, of.count(), config_.hidden, tensor::DType::kF32));
    BATON_TRY(loader_.fill_floats(std::span(all).subspan(static_cast<size_t>(of.begin * config_.hidden),
                                                         static_cast<size_t>(of.count() * config_.hidden)),
                                  packed.front()));
    return held(std::move(packed.front()), of.begin);
  }

  Result<MlpWeights> mlp(const std::string& name, int64_t intermediate) {
    const parallel::Share own = share_.columns(intermediate);
    MlpWeights weights;
    BATON_TRY_ASSIGN(weights.gate, rows(name + "gate_proj", own));
    BATON_TRY_ASSIGN(weights.up, rows(name + "up_proj", own));
    BATON_TRY_ASSIGN(weights.down, tree_outputs(name + "down_proj", 1));
    return weights;
  }

  // The rank's experts.
  std::vector<MatrixPart> experts(int layer, const std::string& part, int64_t rows) const {
    const parallel::Share own = share_.experts(config_.moe->experts);
    if (names_.gguf) return slices(names_.file(names_.experts(layer) + "experts." + part + ".weight"), own, rows);
    std::vector<MatrixPart> all;
    for (int64_t e = own.begin; e < own.end; ++e) all.push_back({.name = names_.expert(layer, e) + part + ".weight"});
    return all;
  }

  Result<MoeWeights> moe(int i) {
    const MoeConfig& config = *config_.moe;
    const std::string name = names_.experts(i);
    MoeWeights weights;
    weights.first_expert = static_cast<int>(share_.experts(config.experts).begin);
    BATON_TRY_ASSIGN(weights.router, float_outputs(name + "gate"));
    if (config.correction_bias) {
      BATON_TRY_ASSIGN(weights.correction, values(name + "gate.e_score_correction_bias"));
    }
    if (config.latent != 0) {
      BATON_TRY_ASSIGN(weights.latent_down, outputs(name + "routed_expert_down_proj"));
      if (config.latent_norm) {
        BATON_TRY_ASSIGN(weights.latent_norm, values(name + "routed_expert_norm.weight"));
      }
      BATON_TRY_ASSIGN(weights.latent_up, outputs(name + "routed_expert_up_proj"));
    }
    const int64_t width = config.latent != 0 ? config.latent : config_.hidden;
    // An expert is never sliced over ranks (rule 5): its K is summed in sequence.
    BATON_TRY_ASSIGN(weights.gate, loader_.matrices(experts(i, names_.gate, config.intermediate)));
    BATON_TRY_ASSIGN(weights.up, loader_.matrices(experts(i, names_.up, config.intermediate)));
    BATON_TRY_ASSIGN(weights.down, loader_.matrices(experts(i, names_.down, width)));
    if (config.shared_experts != 0) {
      BATON_TRY_ASSIGN(weights.shared, mlp(name + "shared_experts.", config.intermediate * config.shared_experts));
    }
    return weights;
  }

  const DeepseekConfig& config_;
  const DeepseekNames names_;
  const RankShare& share_;
  WeightLoader loader_;
};

Result<std::unique_ptr<Model>> DeepseekModel::load(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                                                   ComputePool& pool) {
  BATON_TRY_ASSIGN(DeepseekConfig config, read_deepseek_config(checkpoint));
  if (options.max_positions > config.max_positions) {
    return fail(Code::kOutOfRange, "{}: {} positions were asked for, the checkpoint was trained for {}",
                checkpoint.path(), options.max_positions, config.max_positions);
  }
  parallel::GridLimits limits = {.layers = static_cast<int>(config.layers.size()), .heads = config.mla.heads};
  if (config.kda) limits.heads = std::min(limits.heads, config.kda->heads);
  if (config.moe) limits.experts = config.moe->experts;
  BATON_TRY_ASSIGN(RankShare share, RankShare::make(options.rank, limits, checkpoint.path()));
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
  model->share_ = share;
  model->set_shapes();
  BATON_TRY(Loader(checkpoint, model->config_, std::move(names), model->share_, options, pool).fill(*model));
  return model;
}

}  // namespace baton::models
