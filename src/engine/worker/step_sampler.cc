#include "engine/worker/step_sampler.h"

#include <utility>

namespace baton::engine {

StepSampler::StepSampler(int vocab_size, bool hash_logits, ComputePool& pool)
    : vocab_size_(static_cast<size_t>(vocab_size)),
      hash_logits_(hash_logits),
      pool_(pool),
      sampler_(vocab_size, pool.threads()) {}

StepResult StepSampler::sample(const StepPlan& plan, std::span<const SamplingState* const> states,
                               const float* logits) {
  const float* row = logits;
  std::vector<SampleTask> sample_tasks;
  std::vector<PromptTask> prompt_tasks;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const auto& step = plan.sequences[i];
    const auto top_count = states[i]->params().prompt_logprobs.value_or(0);
    for (const auto target : step.prompt_targets) {
      prompt_tasks.push_back({row, target, top_count, hash_logits_});
      row += vocab_size_;
    }
    for (size_t j = 0; j < step.sample_rows.size(); ++j, row += vocab_size_) {
      sample_tasks.push_back({row, states[i], hash_logits_, step.check_first_token});
    }
  }
  std::vector<SampleResult> samples(sample_tasks.size());
  std::vector<PromptResult> prompts(prompt_tasks.size());
  sampler_.sample(sample_tasks, samples, pool_);
  sampler_.prompt(prompt_tasks, prompts, pool_);

  StepResult result;
  auto sample = samples.begin();
  auto prompt = prompts.begin();
  for (const auto& step : plan.sequences) {
    auto& sequence = result.sequences.emplace_back();
    for (size_t j = 0; j < step.prompt_rows.size(); ++j) sequence.prompts.push_back(std::move(*prompt++));
    for (size_t j = 0; j < step.sample_rows.size(); ++j) sequence.samples.push_back(std::move(*sample++));
  }
  return result;
}

}  // namespace baton::engine
