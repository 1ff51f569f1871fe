// From a checkpoint to a LlamaModel: configuration, table of tensors, identity, then the weights one by one.
#include "models/fingerprint.h"
#include "models/llama/llama_model.h"
#include "models/llama/llama_tensors.h"
#include "models/weight_loader.h"

namespace baton::models {

class LlamaModel::Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const LlamaConfig& config, const LoadOptions& options,
         ComputePool& pool)
      : config_(config), format_(checkpoint.format()), loader_(checkpoint, options, pool) {}

  Result<void> fill(LlamaModel& model) {
    if (!config_.tied_embeddings) {
      BATON_TRY_ASSIGN(model.embedding_, loader_.matrix(name(LlamaTensor::kEmbedding)));
    }
    const auto head = config_.tied_embeddings ? LlamaTensor::kEmbedding : LlamaTensor::kLmHead;
    BATON_TRY_ASSIGN(model.lm_head_, loader_.matrix(name(head)));
    BATON_TRY_ASSIGN(model.final_norm_, loader_.vector(name(LlamaTensor::kFinalNorm)));
    model.layers_.resize(config_.layers);
    for (layer_ = 0; layer_ < config_.layers; ++layer_) BATON_TRY(fill_layer(model.layers_[layer_]));
    model.weight_bytes_ = loader_.bytes_held();
    return {};
  }

 private:
  std::string name(LlamaTensor tensor) const { return llama_tensor_name(tensor, layer_, format_); }

  Result<void> fill_layer(Layer& layer) {
    BATON_TRY_ASSIGN(layer.attention_norm, loader_.vector(name(LlamaTensor::kAttentionNorm)));
    BATON_TRY_ASSIGN(layer.attention.q, linear(LlamaTensor::kQ));
    BATON_TRY_ASSIGN(layer.attention.k, linear(LlamaTensor::kK));
    BATON_TRY_ASSIGN(layer.attention.v, linear(LlamaTensor::kV));
    BATON_TRY_ASSIGN(layer.attention.o, tree_linear(LlamaTensor::kO, config_.attention.head_dim));
    BATON_TRY_ASSIGN(layer.mlp_norm, loader_.vector(name(LlamaTensor::kMlpNorm)));
    BATON_TRY_ASSIGN(layer.mlp.gate, linear(LlamaTensor::kGate));
    BATON_TRY_ASSIGN(layer.mlp.up, linear(LlamaTensor::kUp));
    BATON_TRY_ASSIGN(layer.mlp.down, tree_linear(LlamaTensor::kDown, 1));
    return {};
  }

  Result<Linear> linear(LlamaTensor tensor) {
    BATON_TRY_ASSIGN(auto weight, loader_.matrix(name(tensor)));
    return with_bias(tensor, std::move(weight));
  }
  Result<Linear> tree_linear(LlamaTensor tensor, int64_t unit) {
    BATON_TRY_ASSIGN(auto weight, loader_.tree_matrix(name(tensor), unit));
    return with_bias(tensor, std::move(weight));
  }
  Result<Linear> with_bias(LlamaTensor tensor, kernels::PackedMatrix weight) {
    Linear linear{.weight = std::move(weight)};
    if (llama_has_bias(tensor, config_)) {
      BATON_TRY_ASSIGN(linear.bias, loader_.vector(llama_bias_name(tensor, layer_, format_)));
    }
    return linear;
  }

  const LlamaConfig& config_;
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
  model->rope_ = rope_table(config.rope, config.max_positions);
  BATON_TRY(Loader(checkpoint, model->config_, options, pool).fill(*model));
  return model;
}

}  // namespace baton::models
