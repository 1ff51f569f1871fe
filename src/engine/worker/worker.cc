#include "engine/worker/worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace baton::engine {

Result<Worker> Worker::create(WorkerOptions options, models::Model& model, ComputePool& pool) {
  BATON_TRY(model.prepare(options.max_rows, options.max_logit_rows, pool.threads()));
  const auto bytes = static_cast<size_t>(options.max_logit_rows) * static_cast<size_t>(model.vocab_size()) * 4;
  auto logits = tensor::Buffer::allocate(bytes);
  if (!logits) return fail(logits.error().with_context("logits of a step"));
  return Worker(std::move(options), model, pool, *std::move(logits));
}

Worker::Worker(WorkerOptions options, models::Model& model, ComputePool& pool, tensor::Buffer logits)
    : options_(std::move(options)),
      model_(&model),
      pool_(&pool),
      logits_(std::move(logits)),
      sampler_(model.vocab_size(), pool.threads()) {
  const auto& blocks = options_.shape.layout.blocks;
  for (int entry = 0; entry < blocks.entry_count(); ++entry) entry_offsets_.push_back(blocks.entry_offset(entry));
}

StepResult Worker::execute(const StepPlan& plan, std::span<const SamplingState* const> states) {
  lay_out(plan);
  copy_states(plan);
  forward();
  return sample(plan, states);
}

void Worker::lay_out(const StepPlan& plan) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  block_tables_.clear();
  slices_.clear();
  std::vector<size_t> table_begin;
  for (const auto& step : plan.sequences) {
    const auto row_begin = static_cast<int32_t>(tokens_.size());
    slices_.push_back({.context_len = step.first_position,
                       .row_begin = row_begin,
                       .row_count = static_cast<int>(step.tokens.size()),
                       .state_slot = step.state_slot ? step.state_slot->value : -1});
    table_begin.push_back(block_tables_.size());
    for (const auto block : step.block_tables[0]) block_tables_.push_back(block.value);
    for (size_t i = 0; i < step.tokens.size(); ++i) {
      tokens_.push_back(step.tokens[i]);
      positions_.push_back(static_cast<int32_t>(step.first_position + static_cast<int64_t>(i)));
    }
    // A row is either a prompt row or a sample row, and a sequence's prompt rows come first.
    for (const auto row : step.prompt_rows) logit_rows_.push_back(row_begin + row);
    for (const auto row : step.sample_rows) logit_rows_.push_back(row_begin + row);
  }
  for (size_t i = 0; i < slices_.size(); ++i) slices_[i].block_table = block_tables_.data() + table_begin[i];
  BATON_CHECK(tokens_.size() <= static_cast<size_t>(options_.max_rows) &&
              logit_rows_.size() <= static_cast<size_t>(options_.max_logit_rows));
}

// One after the other: a copy may read what one before it wrote.
void Worker::copy_states(const StepPlan& plan) {
  constexpr int64_t kGrain = 64 << 10;
  const auto& layout = options_.shape.layout;
  for (const auto& step : plan.sequences) {
    for (const auto& copy : step.state_copies) {
      const std::byte* from = options_.kv_memory + layout.slot_offset(copy.from.value);
      std::byte* to = options_.kv_memory + layout.slot_offset(copy.to.value);
      pool_->parallel_for(layout.states.block_bytes(), kGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
    }
  }
}

void Worker::forward() {
  if (tokens_.empty()) return;
  const auto& listener = options_.on_entries;
  model_->forward({.tokens = tokens_,
                   .positions = positions_,
                   .slices = slices_,
                   .logit_rows = logit_rows_,
                   .cache = cache_view(),
                   .on_entries = listener ? &listener : nullptr},
                  logits_.as<float>(), *pool_);
  if (listener) listener(options_.shape.layout.blocks.entry_count());
}

kernels::CacheView Worker::cache_view() const {
  const auto& layout = options_.shape.layout;
  kernels::CacheView view{.blocks = options_.kv_memory,
                          .block_size = layout.blocks.block_size(),
                          .block_stride = layout.blocks.block_bytes(),
                          .entries = options_.shape.entries,
                          .entry_offsets = entry_offsets_};
  if (layout.states.empty()) return view;
  view.states = options_.kv_memory + layout.slot_offset(0);
  view.slot_stride = layout.states.block_bytes();
  view.layer_stride = layout.states.entry_stride();
  view.head_stride = layout.states.entries().front().token_bytes;
  return view;
}

StepResult Worker::sample(const StepPlan& plan, std::span<const SamplingState* const> states) {
  const auto vocab = static_cast<size_t>(model_->vocab_size());
  const float* row = logits_.as<float>();
  std::vector<SampleTask> sample_tasks;
  std::vector<PromptTask> prompt_tasks;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const auto& step = plan.sequences[i];
    const auto top_count = states[i]->params().prompt_logprobs.value_or(0);
    for (const auto target : step.prompt_targets) {
      prompt_tasks.push_back({row, target, top_count, options_.hash_logits});
      row += vocab;
    }
    for (size_t j = 0; j < step.sample_rows.size(); ++j, row += vocab) {
      sample_tasks.push_back({row, states[i], options_.hash_logits, step.check_first_token});
    }
  }
  std::vector<SampleResult> samples(sample_tasks.size());
  std::vector<PromptResult> prompts(prompt_tasks.size());
  sampler_.sample(sample_tasks, samples, *pool_);
  sampler_.prompt(prompt_tasks, prompts, *pool_);

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
