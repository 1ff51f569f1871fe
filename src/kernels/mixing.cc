#include "kernels/mixing.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/math.h"
#include "kernels/mixing_ops.h"

namespace baton::kernels {
namespace {

constexpr int64_t kSpan = 1024;  // features of one unit of work: a single row still has several

const MixingOps& mixing_ops(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return kMixingAvx512;
    case tensor::Isa::kAvx2:
      return kMixingAvx2;
    case tensor::Isa::kPortable:
      break;
  }
  return kMixingPortable;
}

void softmax(float* x, int count) {
  const float most = *std::max_element(x, x + count);
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += x[i] = exp_exact(x[i] - most);
  for (int i = 0; i < count; ++i) x[i] /= sum;
}

}  // namespace

void combine_slots(const CombineArgs& args, ComputePool& pool) {
  BATON_CHECK(args.slots >= 1 && args.slots <= kMaxSlots, "slots={}", args.slots);
  const auto combine = mixing_ops(args.isa).combine;
  const int64_t spans = (args.features + kSpan - 1) / kSpan;
  pool.parallel_for(args.rows * spans, 1, [&](int64_t begin, int64_t end) {
    const float* sources[kMaxSlots];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / spans, from = i % spans * kSpan;
      for (int s = 0; s < args.slots; ++s) {
        sources[s] = args.outputs + args.places[r * args.slots + s] * args.outputs_stride + from;
      }
      combine(sources, args.weights + r * args.slots, args.slots,
              args.shared == nullptr ? nullptr : args.shared + r * args.shared_stride + from,
              args.y + r * args.y_stride + from, std::min(kSpan, args.features - from));
    }
  });
}

void mix_sources(const MixArgs& args, ComputePool& pool) {
  const int count = args.bank_count + (args.last == nullptr ? 0 : 1);
  BATON_CHECK(count >= 1 && count <= kMaxMixSources, "sources={}", count);
  const MixingOps& ops = mixing_ops(args.isa);
  pool.parallel_for(args.rows, 1, [&](int64_t begin, int64_t end) {
    const float* sources[kMaxMixSources];
    float weights[kMaxMixSources];
    for (int64_t r = begin; r < end; ++r) {
      for (int j = 0; j < args.bank_count; ++j) sources[j] = args.bank + r * args.bank_row_stride + j * args.features;
      if (args.last != nullptr) sources[count - 1] = args.last + r * args.last_stride;
      for (int j = 0; j < count; ++j) weights[j] = ops.score(sources[j], args.weight, args.eps, args.features);
      softmax(weights, count);
      ops.weighted_sum(sources, weights, count, args.y + r * args.y_stride, args.features);
    }
  });
}

}  // namespace baton::kernels
