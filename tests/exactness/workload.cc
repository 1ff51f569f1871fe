#include "workload.h"

#include <algorithm>
#include <random>

namespace baton::exactness {
namespace {

int prompt_length(std::mt19937_64& random, int index, int longest) {
  if (index % 20 == 7) return longest - static_cast<int>(random() % (longest / 4));  // beyond two lanes
  if (index % 5 == 0) return 1 + static_cast<int>(random() % 8);
  return 1 + static_cast<int>(random() % std::min(400, longest));
}

engine::SamplingParams sampling_of(std::mt19937_64& random, int index, int max_tokens) {
  engine::SamplingParams sampling;
  sampling.max_tokens = 1 + static_cast<int>(random() % max_tokens);
  sampling.ignore_eos = true;
  switch (index % 3) {
    case 0:
      sampling.temperature = 0;
      if (index % 2 == 0) sampling.repetition_penalty = 1.2f;
      break;
    case 1:
      sampling.temperature = 0.8f;
      sampling.top_p = 0.9f;
      sampling.top_k = 40;
      sampling.min_p = index % 2 == 0 ? 0.02f : 0;
      sampling.presence_penalty = index % 4 == 0 ? 0.5f : 0;
      sampling.frequency_penalty = index % 4 == 1 ? 0.3f : 0;
      sampling.seed = random();
      break;
    default:
      sampling.temperature = 1;
      break;
  }
  return sampling;
}

}  // namespace

std::vector<engine::EngineRequest> make_workload(const WorkloadOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<TokenId> shared(options.longest_prompt);
  for (auto& token : shared) token = 3 + static_cast<TokenId>(random() % (options.vocab_size - 3));
  std::vector<engine::EngineRequest> requests;
  for (int i = 0; i < options.requests; ++i) {
    engine::EngineRequest request;
    request.id = "request-" + std::to_string(i);
    const int length = prompt_length(random, i, options.longest_prompt);
    // Half of them begin alike, so that prefix caches and shared blocks are in play.
    const int common = i % 2 == 0 ? length * 3 / 4 : 0;
    request.prompt_ids.assign(shared.begin(), shared.begin() + common);
    while (static_cast<int>(request.prompt_ids.size()) < length) {
      request.prompt_ids.push_back(3 + static_cast<TokenId>(random() % (options.vocab_size - 3)));
    }
    request.sampling = sampling_of(random, i, options.max_tokens);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace baton::exactness
