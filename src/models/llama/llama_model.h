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
    tensor::Buffer residual, normed, delta, logit_rows;  // [rows, hidden]
    QuantizedInput input;
    GqaScratch attention;
    MlpScratch mlp;
  };
  class Loader;

  const kernels::PackedMatrix& embedding() const { return embedding_ ? *embedding_ : lm_head_; }
  void embed(std::span<const int32_t> tokens, float* out, ComputePool& pool) const;
  void check_batch(const ForwardBatch& batch, const ComputePool& pool) const;
  void write_logits(std::span<const int32_t> rows, float* logits, ComputePool& pool);

  LlamaConfig config_;
  tensor::Isa isa_ = tensor::Isa::kPortable;
  std::optional<kernels::PackedMatrix> embedding_;  // absent: the head's matrix
  kernels::PackedMatrix lm_head_;
  std::vector<float> final_norm_;
  std::vector<Layer> layers_;
  std::vector<float> rope_;  // rope_table
  std::string fingerprint_;
  int64_t weight_bytes_ = 0;
  Scratch scratch_;
};

}  // namespace baton::models
