// From a checkpoint to a LlamaModel: configuration, table of tensors, identity, then the weights one by one.
#include "models/fingerprint.h"
#include "models/llama/llama_model.h"
#include "models/llama/llama_tensors.h"
#include "models/weight_loader.h"

namespace baton::models {

class LlamaModel::Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const LlamaConfig& config, const RankShare& share,
         const LoadOptions& options, ComputePool& pool)
      : config_(config), share_(share), format_(checkpoint.format()), loader_(checkpoint, options, pool) {}

  Result<void> fill(LlamaModel& model) {
    const bool tied = config_.tied_embeddings, last = share_.last_stage();
    if (last) {
      BATON_TRY_ASSIGN(model.lm_head_, outputs(tied ? LlamaTensor::kEmbedding : LlamaTensor::kLmHead));
      BATON_TRY_ASSIGN(model.final_norm_, loader_.vector(name(LlamaTensor::kFinalNorm)));
    }
    if (share_.first_stage() && !(tied && last)) {
      BATON_TRY_ASSIGN(model.embedding_, outputs(LlamaTensor::kEmbedding));
    }
    model.layers_.resize(static_cast<size_t>(share_.layers().count()));
    for (size_t i = 0; i < model.layers_.size(); ++i) {
      layer_ = static_cast<int>(share_.layers().begin) + static_cast<int>(i);
      BATON_TRY(fill_layer(model.heads_, model.layers_[i]));
    }
    model.weight_bytes_ = loader_.bytes_held();
    loader_.complete();
    return {};
  }

 private:
  std::string name(LlamaTensor tensor) const { return llama_tensor_name(tensor, layer_, format_); }

  Result<void> fill_layer(const GqaHeads& heads, Layer& layer) {
    const int64_t dim = config_.attention.head_dim;
    const parallel::Share q = {heads.query.begin * dim, heads.query.end * dim};
    const parallel::Share kv = {heads.kv.begin * dim, heads.kv.end * dim};
    BATON_TRY_ASSIGN(layer.attention_norm, loader_.vector(name(LlamaTensor::kAttentionNorm)));
    BATON_TRY_ASSIGN(layer.attention.q, rows(LlamaTensor::kQ, q));
    BATON_TRY_ASSIGN(layer.attention.k, rows(LlamaTensor::kK, kv));
    BATON_TRY_ASSIGN(layer.attention.v, rows(LlamaTensor::kV, kv));
    BATON_TRY_ASSIGN(layer.attention.o, tree_outputs(LlamaTensor::kO, dim));
    BATON_TRY_ASSIGN(layer.mlp_norm, loader_.vector(name(LlamaTensor::kMlpNorm)));
    BATON_TRY_ASSIGN(layer.mlp.gate, rows(LlamaTensor::kGate, share_.columns(config_.intermediate)));
    BATON_TRY_ASSIGN(layer.mlp.up, rows(LlamaTensor::kUp, share_.columns(config_.intermediate)));
    BATON_TRY_ASSIGN(layer.mlp.down, tree_outputs(LlamaTensor::kDown, 1));
    return {};
  }

  // Outputs that stay with the rank.
  Result<Linear> rows(LlamaTensor tensor, parallel::Share of) {
    BATON_TRY_ASSIGN(auto weight, loader_.matrix_rows(name(tensor), of.begin, of.count()));
    return with_bias(tensor, std::move(weight), of, 0);
  }
  // The rank's part of outputs that the team gathers.
  Result<Linear> outputs(LlamaTensor tensor) {
    BATON_TRY_ASSIGN(const auto shape, loader_.matrix_shape(name(tensor)));
    const parallel::Share of = share_.columns(shape.first);
    BATON_TRY_ASSIGN(auto weight, loader_.matrix_rows(name(tensor), of.begin, of.count()));
    return with_bias(tensor, std::move(weight), of, of.begin);
  }
  Result<Linear> tree_outputs(LlamaTensor tensor, int64_t unit) {
    const parallel::Share of = share_.columns(config_.hidden);
    BATON_TRY_ASSIGN(auto weight, loader_.tree_matrix_rows(name(tensor), unit, of.begin, of.count()));
    return with_bias(tensor, std::move(weight), of, of.begin);
  }
  Result<Linear> with_bias(LlamaTensor tensor, kernels::PackedMatrix weight, parallel::Share of, int64_t first) {
    Linear linear{.weight = std::move(weight), .bias = {}, .first = first};
    if (llama_has_bias(tensor, config_)) {
      BATON_TRY_ASSIGN(const auto all, loader_.vector(llama_bias_name(tensor, layer_, format_)));
      linear.bias.assign(all.begin() + of.begin, all.begin() + of.end);
    }
    return linear;
  }

  const LlamaConfig& config_;
  const RankShare& share_;
  const weights::Checkpoint::Format format_;
  WeightLoader loader_;
  int layer_ = 0;
};

Result<std::unique_ptr<Model>> LlamaModel::load(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                                                ComputePool& pool) {
  BATON_TRY_ASSIGN(LlamaConfig config, read_llama_config(checkpoint));
  if (options.max_positions > config.max_positions) {
    return fail(Code::kOutOfRange, "{}: {} positions were asked for, the checkpoint was trained for {}",
                checkpoint.path(), options.max_positions, config.max_positions);
  }
  BATON_TRY_ASSIGN(
      RankShare share,
      RankShare::make(options.rank, {.layers = config.layers, .heads = config.attention.heads}, checkpoint.path()));
  BATON_TRY(llama_tensor_table(config, checkpoint.format()).check(checkpoint, options.quantization));

  auto model = std::make_unique<LlamaModel>();
  // Identity belongs to the checkpoint, not to how many of its positions this process serves: the table's first rows
  // stand for all of them.
  constexpr int kIdentityPositions = 256;
  model->fingerprint_ = model_fingerprint(checkpoint, config.canonical_text(),
                                          rope_table(config.rope, std::min(kIdentityPositions, config.max_positions)));
  if (options.max_positions > 0) config.max_positions = options.max_positions;
  model->config_ = config;
  model->isa_ = options.isa;
  model->share_ = share;
  model->heads_ = {.query = share.heads(config.attention.heads), .kv = {}};
  // The KV heads that serve the query heads of all ranks among which the context is spread.
  const parallel::Share served = share.place().group_heads(config.attention.heads);
  const int64_t group = config.attention.heads / config.attention.kv_heads;
  model->heads_.kv = {served.begin / group, (served.end - 1) / group + 1};
  BATON_TRY(Loader(checkpoint, model->config_, model->share_, options, pool).fill(*model));
  return model;
}

}  // namespace baton::models
