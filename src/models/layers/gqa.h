// Grouped-query attention of one layer: projections, rotary positions, cache, attention, output projection.
#pragma once

#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/elementwise.h"
#include "kernels/kv_view.h"
#include "models/layers/linear.h"
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

struct GqaWeights {
  Linear q, k, v, o;
};

// Shared by all layers; sized once.
class GqaScratch {
 public:
  static Result<GqaScratch> allocate(const GqaShape& shape, int64_t max_rows, int threads);
  float* qkv() { return qkv_.as<float>(); }              // [rows, q | k | v]
  float* heads_out() { return heads_out_.as<float>(); }  // [rows, heads, head_dim]
  std::span<std::byte> attention() { return {attention_.data(), attention_.size()}; }

 private:
  tensor::Buffer qkv_, heads_out_, attention_;
};

struct GqaStep {
  const GqaShape& shape;
  int64_t rows = 0;
  const int32_t* positions = nullptr;  // [rows]
  const float* cos_sin = nullptr;      // rope_table
  std::span<const kernels::SequenceSlice> slices;
  kernels::PagedKvView cache;  // of this layer
  tensor::Isa isa = tensor::Isa::kPortable;
};

// x: the layer's normed input, already set in `input`; y: [rows, hidden]. Writes the step's keys and values.
void gqa_forward(const GqaWeights& weights, const GqaStep& step, GqaScratch& scratch, QuantizedInput& input, float* y,
                 ComputePool& pool);

}  // namespace baton::models
