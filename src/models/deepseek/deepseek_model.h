// A decoder of multi-head latent attention (and KDA), dense or mixture-of-experts feed-forward, plain or attention
// residuals: DeepSeek V3, R1, V3.2, Kimi K2, Kimi Linear, Kimi K3, K3.1. See deepseek_config.h.
//
// Sketch: a step reads every dense matrix once, of the experts those that some row chose, per row and layer the cache
// (or the recurrent state) of its sequence. No allocation after prepare(). Used by the worker's thread alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/deepseek/deepseek_config.h"
#include "models/layers/attn_res.h"
#include "models/layers/kda.h"
#include "models/layers/mla.h"
#include "models/layers/mlp.h"
#include "models/layers/moe.h"
#include "models/model.h"
#include "models/rank_share.h"

namespace baton::models {

class DeepseekModel : public Model {
 public:
  DeepseekModel();
  ~DeepseekModel() override;
  static Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                                             ComputePool& pool);

  CacheNeeds cache_needs() const override;
  int vocab_size() const override { return static_cast<int>(config_.vocab); }
  int max_positions() const override { return config_.max_positions; }
  tensor::DType native_cache_dtype() const override { return config_.native_dtype; }
  std::string fingerprint() const override { return fingerprint_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t stage_in_floats(int64_t rows) const override;
  int64_t stage_out_floats(int64_t rows) const override;
  Result<void> prepare(int max_rows, int max_logit_rows, int threads) override;
  void forward(const ForwardBatch& batch, float* logits, ComputePool& pool) override;

 private:
  struct Layer {
    std::vector<float> attention_norm, ffn_norm;
    std::optional<AttnResWeights> attention_residual, ffn_residual;
    std::optional<MlaWeights> mla;
    std::optional<KdaWeights> kda;
    std::optional<IndexerWeights> indexer;
    std::optional<MlpWeights> mlp;
    std::optional<MoeWeights> moe;
    int latent_entry = 0, index_entry = 0;  // of the cache
    int state_layer = 0;
  };
  struct Scratch;
  struct Step;
  class Loader;

  void set_shapes();

  void check_batch(const ForwardBatch& batch, const ComputePool& pool) const;
  const Linear& embedding() const { return embedding_ ? *embedding_ : lm_head_; }
  Result<void> prepare_layers(Scratch& scratch) const;
  // What crosses a border of stages, before layer `layer`.
  int banked_blocks(int64_t layer) const;
  bool selection_crosses(int64_t layer) const;
  int64_t border_floats(int64_t layer, int64_t rows) const;
  void enter_stage(Step& step);
  void leave_stage(Step& step, float* logits);
  void tap(int64_t layer, const Step& step) const;
  void run_layer(int index, Step& step);
  void serve_replicas(Step& step);
  void attention(int index, Step& step, float* out);
  void feed_forward(int index, Step& step, float* out);
  // Of the rank's rows: the residual stream, or a mix of it with the bank.
  const float* mixed(const std::optional<AttnResWeights>& mix, Step& step) const;
  void set_input(const std::optional<AttnResWeights>& mix, const std::vector<float>& norm, Step& step) const;
  void add_to_residual(Step& step) const;
  void write_logits(Step& step, float* logits);

  DeepseekConfig config_;
  RankShare share_;
  tensor::Isa isa_ = tensor::Isa::kPortable;
  std::optional<Linear> embedding_;  // by vocabulary; absent: the head's matrix
  Linear lm_head_;                   // on the last stage
  std::vector<float> final_norm_;
  std::optional<AttnResWeights> final_residual_;
  std::vector<Layer> layers_;  // of the stage
  KdaLayerShape kda_shape_;
  MoeShape moe_shape_;                    // its activation is every feed-forward block's
  std::shared_ptr<tensor::Buffer> rope_;  // rope_table, of the team; null without rotary positions
  std::string fingerprint_;
  int64_t weight_bytes_ = 0;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace baton::models
