// The lightning indexer of sparse attention: which positions a row attends to.
//
//   qI = wq_b cq (the query's low rank);  kI = norm(wk x), one per token;  w = weights_proj x * heads^-0.5 * dim^-0.5
//   I[t, s] = sum_h w[t, h] relu(qI[t, h] . kI[s]);  the top_k best s <= t, ties to the lower position
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/kv_view.h"
#include "models/deepseek/deepseek_config.h"
#include "models/layers/linear.h"
#include "tensor/buffer.h"

namespace baton::models {

struct IndexerWeights {
  Linear q_b;                              // [heads * dim, q_lora]
  Linear k;                                // [dim, hidden]
  std::vector<float> k_norm, k_norm_bias;  // [dim]; empty without a norm (a bias)
  Linear head_weights;                     // [heads, hidden], fp32
  // With pools: what weighs a token's key among those of its pool (transformers' glm5_next).
  std::optional<Linear> pool_gate;  // [dim, hidden], fp32
  std::vector<float> pool_bias;     // [pool, dim]
};

struct IndexerStep {
  const IndexerConfig& config;
  int64_t rows = 0;
  const int32_t* positions = nullptr;
  const float* cos_sin = nullptr;
  std::span<const kernels::SequenceSlice> slices;
  kernels::TokenCacheView cache;
  tensor::Isa isa = tensor::Isa::kPortable;
};

// The positions of a step's rows, kept from a layer that has an indexer for those that share it. Sized once.
class IndexSelection {
 public:
  static Result<IndexSelection> allocate(const IndexerConfig& config, int64_t max_rows, int64_t max_positions,
                                         int threads);
  const int32_t* positions() const { return positions_.as<int32_t>(); }  // [rows, stride], ascending
  int64_t stride() const { return stride_; }
  const int32_t* counts() const { return counts_.as<int32_t>(); }  // [rows]

 private:
  friend void run_indexer(const IndexerWeights&, const IndexerStep&, IndexSelection&, QuantizedInput&, QuantizedInput&,
                          ComputePool&);
  int64_t stride_ = 0, max_positions_ = 0;
  tensor::Buffer positions_, counts_;
  tensor::Buffer q_, k_, weights_, scratch_;
};

// x: the layer's normed input; cq: the query's low rank. Writes the step's keys, then selects.
void run_indexer(const IndexerWeights& weights, const IndexerStep& step, IndexSelection& selection, QuantizedInput& x,
                 QuantizedInput& cq, ComputePool& pool);

}  // namespace baton::models
