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
#include "kernels/indexer.h"
#include "kernels/kv_view.h"
#include "models/deepseek/deepseek_config.h"
#include "models/layers/linear.h"
#include "models/layers/team.h"
#include "tensor/buffer.h"

namespace baton::models {

// All of them are cut by outputs over the ranks of a team.
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
  parallel::RankPlace place;
  tensor::Isa isa = tensor::Isa::kPortable;
};

// The positions of a step's rows, kept from a layer that has an indexer for those that share it. Sized once.
//
// A rank chooses for its part of the rows, whatever their number; between the phases below the team gathers.
class IndexSelection {
 public:
  // The same call on each rank of the team.
  static Result<IndexSelection> allocate(const IndexerConfig& config, int64_t max_rows, int64_t max_positions,
                                         int threads, parallel::Group group = {},
                                         const parallel::RankPlace& place = {});
  // Of the team.
  const int32_t* positions() const { return positions_->as<int32_t>(); }  // [rows, stride], ascending
  int64_t stride() const { return stride_; }
  const int32_t* counts() const { return counts_->as<int32_t>(); }  // [rows]

  // 1: the rank's columns of all that reads the layer's normed input.
  void project(const IndexerWeights& weights, const IndexerStep& step, QuantizedInput& x, ComputePool& pool);
  // 2: keys, row by row.
  void make_keys(const IndexerWeights& weights, const IndexerStep& step, const TeamStep& team, ComputePool& pool);
  // 3: the step's keys into the cache; the rank's columns of the queries. cq: the query's low rank.
  void store_keys(const IndexerWeights& weights, const IndexerStep& step, const TeamStep& team, QuantizedInput& cq,
                  ComputePool& pool);
  // 4: the choice for the rank's rows. Others may read it after the team has gathered. Few rows of a context that is
  // spread over ranks: each scores the positions that it holds, for a part of the rows that its context group serves,
  // and leaves its best of them to the others.
  void select(const IndexerWeights& weights, const IndexerStep& step, TeamStep& team, ComputePool& pool);

  // What a pipeline stage hands to the next where that one's layers share this selection: a count, then the positions,
  // of rows `rows`; [rows, 1 + stride].
  static int64_t packed_stride(const IndexerConfig& config) { return config.top_k + config.pool; }
  int64_t packed_stride() const { return 1 + stride_; }
  void pack(parallel::Share rows, float* out) const;
  void unpack(parallel::Share rows, const float* packed);

 private:
  void rotate(const IndexerStep& step, parallel::Share rows, float* q, ComputePool& pool) const;
  kernels::SelectArgs select_args(const IndexerWeights& weights, const IndexerStep& step, const float* q);
  void select_spread(const IndexerWeights& weights, const IndexerStep& step, TeamStep& team, ComputePool& pool);

  int64_t stride_ = 0, max_positions_ = 0;
  std::shared_ptr<tensor::Buffer> positions_, counts_;
  TeamRows q_, k_, weights_;
  tensor::Buffer scratch_;
  std::vector<kernels::SequenceSlice> slices_;  // the rank's part of a step's
  std::shared_ptr<tensor::Buffer> candidates_;  // of each context group; null where the context is one rank's
  size_t candidates_bytes_ = 0;                 // of one
};

// The parts of slices that lie in `rows`.
void clip_slices(std::span<const kernels::SequenceSlice> slices, parallel::Share rows,
                 std::vector<kernels::SequenceSlice>& out);

// All phases on one rank. x: the layer's normed input; cq: the query's low rank.
void run_indexer(const IndexerWeights& weights, const IndexerStep& step, IndexSelection& selection, QuantizedInput& x,
                 QuantizedInput& cq, ComputePool& pool);

}  // namespace baton::models
