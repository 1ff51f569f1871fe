// One row's choice. Everything here is a fixed order of float operations on one thread.
#include <algorithm>
#include <array>
#include <limits>

#include "engine/sampling/row_math.h"
#include "engine/sampling/sampler.h"
#include "kernels/math.h"

namespace baton::engine {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

struct Candidate {
  float score = 0;  // (logit - maximum) / temperature: at most 0
  TokenId id = 0;
};
bool better(const Candidate& a, const Candidate& b) { return a.score > b.score || (a.score == b.score && a.id < b.id); }

void apply_bias(const SamplingParams& params, std::vector<float>& work) {
  for (const auto& [token, bias] : params.logit_bias) work[static_cast<size_t>(token)] += bias;
}

// Each token once, so the map's order does not matter.
void apply_penalties(const SamplingState& state, std::vector<float>& work) {
  const auto& params = state.params();
  for (const auto& [token, seen] : state.seen()) {
    auto& logit = work[static_cast<size_t>(token)];
    if (seen.anywhere) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    if (seen.outputs > 0) {
      logit -= params.frequency_penalty * static_cast<float>(seen.outputs);
      logit -= params.presence_penalty;
    }
  }
}

void forbid_bad_words(const SamplingState& state, std::vector<float>& work) {
  const auto& outputs = state.outputs();
  for (const auto& word : state.params().bad_words) {
    if (word.empty() || word.size() > outputs.size() + 1) continue;
    const auto tail = outputs.end() - static_cast<std::ptrdiff_t>(word.size() - 1);
    if (std::equal(word.begin(), word.end() - 1, tail)) work[static_cast<size_t>(word.back())] = kForbidden;
  }
}

void keep_allowed(const std::vector<TokenId>& allowed, std::vector<float>& work) {
  std::vector<std::pair<TokenId, float>> kept;
  kept.reserve(allowed.size());
  for (const auto token : allowed) kept.emplace_back(token, work[static_cast<size_t>(token)]);
  std::ranges::fill(work, kForbidden);
  for (const auto& [token, logit] : kept) work[static_cast<size_t>(token)] = logit;
}

// The logits after bias, penalties and masks: the row itself when there are none.
std::span<const float> processed(std::span<const float> logits, const SamplingState& state, int min_tokens,
                                 std::vector<float>& work) {
  const auto& params = state.params();
  const bool end_forbidden = static_cast<int>(state.outputs().size()) < min_tokens && !state.end_ids().empty();
  const bool changed = !params.logit_bias.empty() || state.penalised() || !params.allowed_token_ids.empty() ||
                       !params.bad_words.empty() || end_forbidden;
  if (!changed) return logits;
  work.assign(logits.begin(), logits.end());
  apply_bias(params, work);
  if (state.penalised()) apply_penalties(state, work);
  if (!params.allowed_token_ids.empty()) keep_allowed(params.allowed_token_ids, work);
  forbid_bad_words(state, work);
  if (end_forbidden) {
    for (const auto token : state.end_ids()) work[static_cast<size_t>(token)] = kForbidden;
  }
  return work;
}

// The Gumbel maximum as it is found. A token whose bound can't reach the best is passed over without a logarithm, which
// never changes the winner.
class GumbelMaximum {
 public:
  explicit GumbelMaximum(const NoiseKey& key) : key_(key) {}
  void consider(const Candidate& candidate) { consider(candidate, words(candidate.id)); }
  TokenId winner() const { return winner_; }

 private:
  // Calls come by groups of four in the whole-vocabulary scan, so the last group's words are kept.
  uint32_t words(TokenId id) {
    const auto group = static_cast<uint32_t>(id) >> 2;
    if (group != group_) {
      words_ = noise_words(key_, group);
      group_ = group;
    }
    return words_[static_cast<uint32_t>(id) & 3];
  }
  void consider(const Candidate& candidate, uint32_t word) {
    if (winner_ >= 0 && candidate.score + gumbel_bound(word) < best_) return;
    const float value = candidate.score + gumbel(word);
    if (winner_ >= 0 && (value < best_ || (value == best_ && candidate.id > winner_))) return;
    best_ = value;
    winner_ = candidate.id;
  }

  const NoiseKey key_;
  std::array<uint32_t, 4> words_{};
  uint32_t group_ = std::numeric_limits<uint32_t>::max();
  float best_ = 0;
  TokenId winner_ = -1;
};

// The largest Gumbel value there is: -log of the smallest exponential, 2^-33, is 22.87.
constexpr float kGumbelLargest = 22.9f;

// The best `count` scores that are at least `lowest`, best first: a heap with the worst of them at its top, so that
// most entries cost one comparison.
std::vector<Candidate> best_scores(std::span<const float> scores, size_t count, float lowest) {
  std::vector<Candidate> best;
  best.reserve(std::min(count, scores.size()));
  for (size_t id = 0; id < scores.size(); ++id) {
    const Candidate candidate{scores[id], static_cast<TokenId>(id)};
    if (!(candidate.score >= lowest)) continue;
    if (best.size() < count) {
      best.push_back(candidate);
      std::ranges::push_heap(best, better);
    } else if (better(candidate, best.front())) {
      std::ranges::pop_heap(best, better);
      best.back() = candidate;
      std::ranges::push_heap(best, better);
    }
  }
  std::ranges::sort_heap(best, better);
  return best;
}

// Leaves the fewest of the candidates, best first, whose probabilities of `total` reach top_p.
void cut_at_top_p(std::vector<Candidate>& candidates, float top_p, double total) {
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || sum < top_p * total)) {
    sum += static_cast<double>(kernels::exp_exact(candidates[kept++].score));
  }
  candidates.resize(kept);
}

std::vector<Candidate> by_top_k(std::span<const float> scores, const SamplingParams& params, float lowest) {
  auto candidates = best_scores(scores, static_cast<size_t>(params.top_k), lowest);
  if (params.top_p >= 1) return candidates;
  double total = 0;
  for (const auto& candidate : candidates) total += static_cast<double>(kernels::exp_exact(candidate.score));
  cut_at_top_p(candidates, params.top_p, total);
  return candidates;
}

// An eighth of a logit each; all that are 16 or more below the best share the last.
constexpr int kBuckets = 129;
int bucket_of(float score) { return static_cast<int>(std::min(-score * 8.0f, static_cast<float>(kBuckets - 1))); }

// Weights are added up by bucket first, so that only the tokens of the buckets that top_p reaches need an order. The
// margin covers the rounding of these sums: a token cut here would have been cut one by one.
std::vector<Candidate> by_top_p(std::span<const float> scores, float top_p, float lowest, std::vector<float>& weights) {
  weights.assign(scores.begin(), scores.end());
  exponentials(weights);
  std::array<double, kBuckets> sums{};
  for (size_t id = 0; id < weights.size(); ++id) {
    if (scores[id] >= lowest) sums[static_cast<size_t>(bucket_of(scores[id]))] += static_cast<double>(weights[id]);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  int last = 0;
  for (double sum = sums[0]; last < kBuckets - 1 && sum < top_p * total * (1 + 1e-9);) {
    sum += sums[static_cast<size_t>(++last)];
  }
  const float cut = last == kBuckets - 1 ? lowest : std::max(lowest, -static_cast<float>(last + 1) / 8.0f);
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] >= cut) candidates.push_back({scores[id], static_cast<TokenId>(id)});
  }
  std::ranges::sort(candidates, better);
  cut_at_top_p(candidates, top_p, total);
  return candidates;
}

TokenId sample_candidates(std::span<const float> logits, const SamplingParams& params, const RowMaximum& maximum,
                          float lowest, const NoiseKey& key, TokenScratch& scratch) {
  scratch.scores.resize(logits.size());
  shift_and_scale(logits, maximum.logit, params.temperature, scratch.scores);
  const auto candidates = params.top_k > 0 ? by_top_k(scratch.scores, params, lowest)
                                           : by_top_p(scratch.scores, params.top_p, lowest, scratch.weights);
  GumbelMaximum gumbel_maximum(key);
  for (const auto& candidate : candidates) gumbel_maximum.consider(candidate);
  return gumbel_maximum.winner();
}

TokenId sample_all(std::span<const float> logits, float temperature, const RowMaximum& maximum, float lowest,
                   const NoiseKey& key) {
  GumbelMaximum gumbel_maximum(key);
  gumbel_maximum.consider({0, maximum.id});
  const uint32_t word = noise_words(key, static_cast<uint32_t>(maximum.id) >> 2)[maximum.id & 3];
  // What no noise can lift above the likeliest token's value is passed over before its noise is made.
  const float floor = std::max(lowest, gumbel(word) - kGumbelLargest);
  for (size_t id = 0; id < logits.size(); ++id) {
    const float score = (logits[id] - maximum.logit) / temperature;
    if (score >= floor) gumbel_maximum.consider({score, static_cast<TokenId>(id)});
  }
  return gumbel_maximum.winner();
}

}  // namespace

Result<TokenId> choose_token(std::span<const float> logits, const SamplingState& state, int min_tokens,
                             TokenScratch& scratch) {
  const auto& params = state.params();
  const auto row = processed(logits, state, min_tokens, scratch.work);
  const auto maximum = row_maximum(row);
  if (maximum.has_nan || maximum.logit == -kForbidden) {
    return fail(Code::kInternal, "the model gave logits that are not finite at output position {}",
                state.outputs().size());
  }
  if (maximum.id < 0) {
    return fail(Code::kInvalidArgument,
                "no token is allowed at output position {}: allowed_token_ids, bad_words and min_tokens forbid all",
                state.outputs().size());
  }
  if (state.greedy()) return maximum.id;
  const float lowest = params.min_p > 0 ? kernels::log_exact(params.min_p) : std::numeric_limits<float>::lowest();
  const bool everything = params.top_k <= 0 && params.top_p >= 1;
  return everything ? sample_all(row, params.temperature, maximum, lowest, state.noise_key())
                    : sample_candidates(row, params, maximum, lowest, state.noise_key(), scratch);
}

}  // namespace baton::engine
