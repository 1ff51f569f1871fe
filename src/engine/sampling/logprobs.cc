#include "engine/sampling/logprobs.h"

#include <algorithm>

#include "engine/sampling/row_math.h"
#include "kernels/math.h"

namespace baton::engine {
namespace {

struct Better {
  std::span<const float> logits;
  bool operator()(TokenId a, TokenId b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  }
};

// The best `count` ids, best first: a heap with the worst of the best at its top, so most ids cost one comparison.
std::vector<TokenId> best_ids(std::span<const float> logits, size_t count) {
  const Better better{logits};
  std::vector<TokenId> best;
  best.reserve(count);
  for (TokenId id = 0; id < static_cast<TokenId>(logits.size()); ++id) {
    if (best.size() < count) {
      best.push_back(id);
      if (best.size() == count && count < logits.size()) std::ranges::make_heap(best, better);
    } else if (count > 0 && better(id, best.front())) {
      std::ranges::pop_heap(best, better);
      best.back() = id;
      std::ranges::push_heap(best, better);
    }
  }
  std::ranges::sort(best, better);
  return best;
}

}  // namespace

RowLogprobs row_logprobs(std::span<const float> logits, TokenId own, int top_count) {
  const float maximum = row_maximum(logits).logit;
  std::vector<float> weights(logits.size());
  shift_and_scale(logits, maximum, 1, weights);
  exponentials(weights);
  const float log_sum = kernels::log_exact(static_cast<float>(ordered_sum(weights)));
  const auto logprob = [&](TokenId id) { return (logits[static_cast<size_t>(id)] - maximum) - log_sum; };

  const float own_logit = logits[static_cast<size_t>(own)];
  const auto rank = std::ranges::count_if(logits, [&](float logit) { return logit >= own_logit; });
  RowLogprobs row{.own = {own, logprob(own), static_cast<int>(rank)}, .top = {}};
  const auto count = top_count < 0 ? logits.size() : std::min(static_cast<size_t>(top_count), logits.size());
  row.top.reserve(count);
  for (const auto id : best_ids(logits, count)) {
    row.top.push_back({id, logprob(id), static_cast<int>(row.top.size()) + 1});
  }
  return row;
}

}  // namespace baton::engine
