// Weighted sums of vectors in a fixed order: what a row's experts computed, and the sources of attention residuals.
#pragma once

#include <cstdint>

#include "base/compute_pool.h"
#include "tensor/cpu.h"

namespace baton::kernels {

inline constexpr int kMaxSlots = 64;

// y[r] = tree over slots s of weights[r, s] * outputs[places[r, s]], then + shared[r]. The tree adds neighbours, (0,
// 1), (2, 3), ..., then neighbours of those; a last one without a neighbour moves up as it is (rule 5).
struct CombineArgs {
  const float* outputs = nullptr;  // rows of experts' outputs, in any order
  int64_t outputs_stride = 0;
  const int32_t* places = nullptr;  // [rows, slots]: rows of outputs
  const float* weights = nullptr;   // [rows, slots]
  int slots = 0;                    // 1 to kMaxSlots
  const float* shared = nullptr;    // [rows, features], or null
  int64_t shared_stride = 0;
  float* y = nullptr;  // [rows, features]
  int64_t y_stride = 0;
  int64_t rows = 0, features = 0;
  tensor::Isa isa = tensor::Isa::kPortable;
};
void combine_slots(const CombineArgs& args, ComputePool& pool);

inline constexpr int kMaxMixSources = 64;

// Attention residuals (Kimi K3): the sources of row r are bank[r, 0 ...], then last[r] if last is not null.
//   e_j = sum(s_j * weight) / sqrt(mean(s_j^2) + eps), weight = norm weight * projection;  a = softmax(e);
//   y = sum_j a_j s_j, ascending j, with fma.
struct MixArgs {
  const float* bank = nullptr;  // [rows, bank_count, features]
  int64_t bank_row_stride = 0;  // elements between rows; sources of a row are `features` apart
  int bank_count = 0;           // with `last`: 1 to kMaxMixSources sources
  const float* last = nullptr;  // [rows, features]
  int64_t last_stride = 0;
  const float* weight = nullptr;  // [features]
  float eps = 1e-5f;
  float* y = nullptr;  // [rows, features]; not a source
  int64_t y_stride = 0;
  int64_t rows = 0, features = 0;
  tensor::Isa isa = tensor::Isa::kPortable;
};
void mix_sources(const MixArgs& args, ComputePool& pool);

}  // namespace baton::kernels
