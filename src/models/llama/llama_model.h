// A Llama: token embedding, layers of grouped-query attention and gated feed-forward, final norm, output head.
//
// Sketch, SmolLM2-135M Q4_1: 90 MB of weights read once per step; per row and layer 2 * 2.9 M multiply-adds in int8,
// and attention over the sequence's cache. No allocation after prepare(). Used by the worker's thread alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/gqa.h"
#include "models/layers/mlp.h"
#include "models/llama/llama_config.h"
#include "models/model.h"
#include "models/rank_share.h"

namespace baton::models {

class LlamaModel : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                                             ComputePool& pool);

  CacheNeeds cache_needs() const override;
  int vocab_size() const override { return static_cast<int>(config_.vocab); }
  int max_positions() const override { return config_.max_positions; }
  tensor::DType native_cache_dtype() const override { return config_.native_dtype; }
  std::string fingerprint() const override { return fingerprint_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t stage_in_floats(int64_t rows) const override { return share_.first_stage() ? 0 : rows * config_.hidden; }
  int64_t stage_out_floats(int64_t rows) const override { return share_.last_stage() ? 0 : rows * config_.hidden; }
  Result<void> prepare(int max_rows, int max_logit_rows, int threads) override;
  void forward(const ForwardBatch& batch, float* logits, ComputePool& pool) override;

 private:
  struct Layer {
    std::vector<float> attention_norm, mlp_norm;
    GqaWeights attention;
    MlpWeights mlp;
  };
  struct Scratch {
    int max_rows = 0, max_logit_rows = 0, threads = 0;
    tensor::Buffer residual;                // [rows of the rank, hidden]
    std::shared_ptr<tensor::Buffer> delta;  // [rows, hidden], of the team
    TeamRows normed, logit_rows;            // [rows, hidden]
    QuantizedInput input;
    GqaScratch attention;
    MlpScratch mlp;
  };
  class Loader;

  const Linear& embedding() const { return embedding_ ? *embedding_ : lm_head_; }
  // The residual stream of the rank's rows.
  void begin_residual(const ForwardBatch& batch, TeamStep& team, ComputePool& pool);
  void add_norm(const std::vector<float>& weight, TeamStep& team, ComputePool& pool);
  void check_batch(const ForwardBatch& batch, const ComputePool& pool) const;
  void tap(const ForwardBatch& batch, int64_t layer, const TeamStep& team) const;
  void leave_stage(const ForwardBatch& batch, TeamStep& team, float* logits, ComputePool& pool);

  LlamaConfig config_;
  RankShare share_;
  GqaHeads heads_;
  tensor::Isa isa_ = tensor::Isa::kPortable;
  std::optional<Linear> embedding_;  // by vocabulary; absent: the head's matrix
  Linear lm_head_;                   // on the last stage
  std::vector<float> final_norm_;
  std::vector<Layer> layers_;             // of the stage
  std::shared_ptr<tensor::Buffer> rope_;  // rope_table, of the team
  std::string fingerprint_;
  int64_t weight_bytes_ = 0;
  Scratch scratch_;
};

}  // namespace baton::models
