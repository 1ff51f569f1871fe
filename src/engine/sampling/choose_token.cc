// One row's choice. Everything here is a fixed order of float operations on one thread.
#include <algorithm>
#include <limits>

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

// Leaves the best `count`, in descending order.
void keep_top_k(std::vector<Candidate>& candidates, size_t count) {
  if (count < candidates.size()) {
    std::ranges::nth_element(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(count), better);
    candidates.resize(count);
  }
  std::ranges::sort(candidates, better);
}

// Leaves the fewest best candidates whose probability among the given ones reaches top_p. The sum runs in the order
// given; the descent takes from a heap no more than it keeps.
void keep_top_p(std::vector<Candidate>& candidates, float top_p) {
  double total = 0;
  for (const auto& candidate : candidates) total += kernels::exp_exact(candidate.score);
  const auto worse = [](const Candidate& a, const Candidate& b) { return better(b, a); };
  std::ranges::make_heap(candidates, worse);
  std::vector<Candidate> kept;
  double sum = 0;
  auto end = candidates.end();
  while (end != candidates.begin() && (kept.empty() || sum < top_p * total)) {
    std::ranges::pop_heap(candidates.begin(), end, worse);
    --end;
    kept.push_back(*end);
    sum += kernels::exp_exact(end->score);
  }
  candidates = std::move(kept);
}

struct Maximum {
  float logit = kForbidden;
  TokenId id = -1;
  bool has_nan = false;
};

Maximum find_maximum(std::span<const float> logits) {
  Maximum maximum;
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = logits[id];
    if (logit != logit) maximum.has_nan = true;
    if (logit > maximum.logit) maximum = {logit, static_cast<TokenId>(id), maximum.has_nan};
  }
  return maximum;
}

TokenId sample_candidates(std::span<const float> logits, const SamplingParams& params, const Maximum& maximum,
                          float lowest, const NoiseKey& key) {
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < logits.size(); ++id) {
    const float score = (logits[id] - maximum.logit) / params.temperature;
    if (score >= lowest) candidates.push_back({score, static_cast<TokenId>(id)});
  }
  if (params.top_k > 0) keep_top_k(candidates, static_cast<size_t>(params.top_k));
  if (params.top_p < 1) keep_top_p(candidates, params.top_p);
  GumbelMaximum gumbel_maximum(key);
  for (const auto& candidate : candidates) gumbel_maximum.consider(candidate);
  return gumbel_maximum.winner();
}

TokenId sample_all(std::span<const float> logits, float temperature, const Maximum& maximum, float lowest,
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
                             std::vector<float>& work) {
  const auto& params = state.params();
  const auto row = processed(logits, state, min_tokens, work);
  const auto maximum = find_maximum(row);
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
                    : sample_candidates(row, params, maximum, lowest, state.noise_key());
}

}  // namespace baton::engine
