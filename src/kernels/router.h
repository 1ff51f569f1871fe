// Which experts serve a row, and with what weights: DeepSeek-V3's and Kimi's routing.
#pragma once

#include <cstdint>

#include "base/compute_pool.h"
#include "base/status.h"
#include "tensor/cpu.h"

namespace baton::kernels {

enum class RouterScore : uint8_t { kSigmoid, kSoftmax };

struct RouterSpec {
  int experts = 0;
  int top_k = 0;
  // With more than one group, only the experts of the top_groups best groups can be chosen. A group is as good as the
  // sum of its two best corrected scores.
  int groups = 1;
  int top_groups = 1;
  RouterScore score = RouterScore::kSigmoid;
  bool renormalize = false;  // weights of a row sum to one
  float scale = 1;           // and are multiplied by this
  bool operator==(const RouterSpec&) const = default;
};
inline constexpr int kRouterMaxTopK = 64;
inline constexpr int kRouterMaxGroups = 64;
// kInvalidArgument where the numbers contradict each other or pass the limits above.
Result<void> check_router(const RouterSpec& spec);

// logits: [rows, experts] with row stride; overwritten by the scores s (sigmoid or softmax).
// correction: [experts] added to s for the choice alone, or null. ids, weights: [rows, top_k] in slot order: by
// corrected score descending, equal ones by id ascending (rules 5 and 6); a NaN ranks last. weights = s of the chosen;
// renormalised: / (their sum in slot order + 1e-20); then times scale.
void route(const RouterSpec& spec, const float* correction, float* logits, int64_t stride, int64_t rows, int32_t* ids,
           float* weights, tensor::Isa isa, ComputePool& pool);

}  // namespace baton::kernels
