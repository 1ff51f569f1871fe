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

struct Sources {
  const MixArgs& args;
  int count;

  explicit Sources(const MixArgs& a) : args(a), count(a.bank_count + (a.last == nullptr ? 0 : 1)) {}
  const float* at(int64_t row, int j) const {
    if (j == args.bank_count) return args.last + row * args.last_stride;
    return args.bank + row * args.bank_row_stride + j * args.features;
  }
  // y[row] over features [from, from + features).
  void weigh(int64_t row, const float* weights, int64_t from, int64_t features) const {
    const float* parts[kMaxMixSources];
    for (int j = 0; j < count; ++j) parts[j] = at(row, j) + from;
    mixing_ops(args.isa).weighted_sum(parts, weights, count, args.y + row * args.y_stride + from, features);
  }
  float score(int64_t row, int j) const {
    return mixing_ops(args.isa).score(at(row, j), args.weight, args.eps, args.features);
  }
};

// A row stays with one thread, and its sources in that thread's cache.
void mix_many_rows(const MixArgs& args, const Sources& sources, ComputePool& pool) {
  pool.parallel_for(args.rows, 1, [&](int64_t begin, int64_t end) {
    float weights[kMaxMixSources];
    for (int64_t r = begin; r < end; ++r) {
      for (int j = 0; j < sources.count; ++j) weights[j] = sources.score(r, j);
      softmax(weights, sources.count);
      sources.weigh(r, weights, 0, args.features);
    }
  });
}

// Fewer rows than threads: threads share out the sources, then the features.
constexpr int kFewRows = 16;
void mix_few_rows(const MixArgs& args, const Sources& sources, ComputePool& pool) {
  float weights[kFewRows][kMaxMixSources];
  pool.parallel_for(args.rows * sources.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int j = static_cast<int>(i % sources.count);
      weights[i / sources.count][j] = sources.score(i / sources.count, j);
    }
  });
  for (int64_t r = 0; r < args.rows; ++r) softmax(weights[r], sources.count);
  const int64_t spans = (args.features + kSpan - 1) / kSpan;
  pool.parallel_for(args.rows * spans, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = i % spans * kSpan;
      sources.weigh(i / spans, weights[i / spans], from, std::min(kSpan, args.features - from));
    }
  });
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
  const Sources sources(args);
  BATON_CHECK(sources.count >= 1 && sources.count <= kMaxMixSources, "sources={}", sources.count);
  if (args.rows < std::min(pool.threads(), kFewRows))
    mix_few_rows(args, sources, pool);
  else
    mix_many_rows(args, sources, pool);
}

}  // namespace baton::kernels
