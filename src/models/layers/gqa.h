// Grouped-query attention of one layer: projections, rotary positions, cache, attention, output projection.
#pragma once

#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/elementwise.h"
#include "kernels/kv_view.h"
#include "models/layers/context_lanes.h"
#include "models/layers/linear.h"
#include "models/layers/team.h"
#include "tensor/buffer.h"

namespace baton::models {

struct GqaShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rope_dim = 0;
  kernels::RopePairing pairing = kernels::RopePairing::kHalfSplit;

  int64_t q_features() const { return static_cast<int64_t>(heads) * head_dim; }
  int64_t kv_features() const { return static_cast<int64_t>(kv_heads) * head_dim; }
};

// Which heads a rank has: its own query heads, and the KV heads that it stores, which serve at least those.
struct GqaHeads {
  parallel::Share query, kv;
};

// q, k, v: of the rank's heads. o: some of its outputs.
struct GqaWeights {
  Linear q, k, v, o;
};

// Shared by all layers; sized once.
class GqaScratch {
 public:
  // The same call on each rank of the team.
  static Result<GqaScratch> allocate(const GqaShape& shape, const GqaHeads& heads, int64_t max_rows, int threads,
                                     parallel::Group group = {}, const parallel::RankPlace& place = {});
  float* qkv() { return qkv_.as<float>(); }               // [rows, q | k | v] of the rank's heads
  float* heads_out() { return heads_out_->as<float>(); }  // [rows, heads, head_dim], of the team
  std::span<std::byte> attention() { return {attention_.data(), attention_.size()}; }
  ContextLanes& lanes() { return lanes_; }
  // Query heads of `heads` that use each of the rank's KV heads, as attention takes them.
  const int32_t* borders(const GqaShape& shape, const GqaHeads& held, parallel::Share heads);

 private:
  tensor::Buffer qkv_, attention_;
  std::shared_ptr<tensor::Buffer> heads_out_;
  ContextLanes lanes_;
  std::vector<int32_t> borders_;
};

struct GqaStep {
  const GqaShape& shape;
  const GqaHeads& heads;
  const int32_t* positions = nullptr;  // [rows]
  const float* cos_sin = nullptr;      // rope_table
  std::span<const kernels::SequenceSlice> slices;
  kernels::PagedKvView cache;  // of this layer, the rank's KV heads
  tensor::Isa isa = tensor::Isa::kPortable;
};

// x: the layer's normed input, already set in `input`; y: [rows, hidden] of the team, of which all columns are there on
// return. Writes the step's keys and values.
void gqa_forward(const GqaWeights& weights, const GqaStep& step, TeamStep& team, GqaScratch& scratch,
                 QuantizedInput& input, float* y, int64_t hidden, ComputePool& pool);

}  // namespace baton::models
