#include "kernels/router.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/math.h"

namespace baton::kernels {
namespace {

// The best `capacity` of a stream of (score, id), best first; ids come ascending, so an equal score goes behind.
struct Best {
  float scores[kRouterMaxTopK];
  int32_t ids[kRouterMaxTopK];
  int capacity;
  int count = 0;

  explicit Best(int n) : capacity(n) {}
  void offer(float score, int32_t id) {
    if (count == capacity && !(score > scores[count - 1])) return;
    int at = count < capacity ? count++ : capacity - 1;
    for (; at > 0 && score > scores[at - 1]; --at) {
      scores[at] = scores[at - 1];
      ids[at] = ids[at - 1];
    }
    scores[at] = score;
    ids[at] = id;
  }
};

struct Row {
  const RouterSpec& spec;
  const float* scores;
  const float* correction;

  // What the choice goes by. A NaN becomes -inf: every comparison then has an answer.
  float choice(int expert) const {
    const float c = correction == nullptr ? scores[expert] : scores[expert] + correction[expert];
    return std::isnan(c) ? -HUGE_VALF : c;
  }
  float group_score(int begin, int end) const {
    Best best(2);
    for (int e = begin; e < end; ++e) best.offer(choice(e), e);
    return best.scores[0] + best.scores[1];
  }
  Best choose() const {
    const int group_size = spec.experts / spec.groups;
    bool open[kRouterMaxGroups];
    std::fill_n(open, spec.groups, spec.groups == spec.top_groups);
    if (spec.top_groups < spec.groups) {
      Best groups(spec.top_groups);
      for (int g = 0; g < spec.groups; ++g) groups.offer(group_score(g * group_size, (g + 1) * group_size), g);
      for (int i = 0; i < groups.count; ++i) open[groups.ids[i]] = true;
    }
    Best best(spec.top_k);
    for (int g = 0; g < spec.groups; ++g) {
      if (!open[g]) continue;
      for (int e = g * group_size; e < (g + 1) * group_size; ++e) best.offer(choice(e), e);
    }
    return best;
  }
};

void softmax(float* x, int n, tensor::Isa isa) {
  const float most = *std::max_element(x, x + n);
  for (int i = 0; i < n; ++i) x[i] -= most;
  exp_exact(x, x, n, isa);
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i];
  for (int i = 0; i < n; ++i) x[i] /= sum;
}

void route_row(const RouterSpec& spec, const float* correction, float* row, int32_t* ids, float* weights,
               tensor::Isa isa) {
  if (spec.score == RouterScore::kSigmoid)
    sigmoid_exact(row, row, spec.experts, isa);
  else
    softmax(row, spec.experts, isa);
  const Best best = Row{spec, row, correction}.choose();
  float sum = 0;
  for (int s = 0; s < spec.top_k; ++s) {
    ids[s] = best.ids[s];
    weights[s] = row[best.ids[s]];
    sum += weights[s];
  }
  for (int s = 0; s < spec.top_k; ++s) {
    if (spec.renormalize) weights[s] /= sum + 1e-20f;
    weights[s] *= spec.scale;
  }
}

}  // namespace

Result<void> check_router(const RouterSpec& spec) {
  if (spec.experts < 1 || spec.top_k < 1 || spec.top_k > std::min(spec.experts, kRouterMaxTopK)) {
    return fail(Code::kInvalidArgument,
                "routing to {} of {} experts: at least 1, at most {} and no more than there are", spec.top_k,
                spec.experts, kRouterMaxTopK);
  }
  if (spec.groups < 1 || spec.groups > kRouterMaxGroups || spec.top_groups < 1 || spec.top_groups > spec.groups) {
    return fail(Code::kInvalidArgument, "routing to {} of {} groups of experts: at least 1, at most {}",
                spec.top_groups, spec.groups, kRouterMaxGroups);
  }
  if (spec.groups == 1) return {};
  const int group_size = spec.experts / spec.groups;
  if (spec.experts % spec.groups != 0 || group_size < 2 || spec.top_k > spec.top_groups * group_size) {
    return fail(Code::kInvalidArgument,
                "{} experts in {} groups, {} of them from {} groups: groups must be equal, of 2 experts or more, and "
                "hold enough",
                spec.experts, spec.groups, spec.top_k, spec.top_groups);
  }
  return {};
}

void route(const RouterSpec& spec, const float* correction, float* logits, int64_t stride, int64_t rows, int32_t* ids,
           float* weights, tensor::Isa isa, ComputePool& pool) {
  BATON_CHECK(check_router(spec).has_value(), "experts={} top_k={} groups={} top_groups={}", spec.experts, spec.top_k,
              spec.groups, spec.top_groups);
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      route_row(spec, correction, logits + r * stride, ids + r * spec.top_k, weights + r * spec.top_k, isa);
    }
  });
}

}  // namespace baton::kernels
