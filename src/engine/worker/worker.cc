#include "engine/worker/worker.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace baton::engine {

Result<Worker> Worker::create(WorkerOptions options, models::Model& model, ComputePool& pool) {
  BATON_TRY(model.prepare(options.max_rows, options.max_logit_rows, pool.threads()));
  return Worker(std::move(options), model, pool);
}

Worker::Worker(WorkerOptions options, models::Model& model, ComputePool& pool)
    : options_(std::move(options)), model_(&model), pool_(&pool) {
  const auto& blocks = options_.shape.layout.blocks;
  for (int entry = 0; entry < blocks.entry_count(); ++entry) entry_offsets_.push_back(blocks.entry_offset(entry));
}

void Worker::execute(const RankStep& step, const StepBuffers& buffers) {
  BATON_CHECK(step.rows() <= options_.max_rows &&
              step.logit_rows.size() <= static_cast<size_t>(options_.max_logit_rows));
  copy_states(step);
  std::function<void(int)> listener;
  if (options_.on_entries && step.push_step != 0) {
    listener = [this, number = step.push_step](int count) { options_.on_entries(number, count); };
  }
  model_->forward({.tokens = step.tokens,
                   .positions = step.positions,
                   .slices = step.slices,
                   .logit_rows = step.logit_rows,
                   .cache = cache_view(),
                   .on_entries = listener ? &listener : nullptr,
                   .stage_in = buffers.stage_in,
                   .stage_out = buffers.stage_out},
                  buffers.logits, *pool_);
  if (listener) listener(options_.shape.layout.blocks.entry_count());
}

void Worker::copy_states(const RankStep& step) {
  constexpr int64_t kGrain = 64 << 10;
  const auto& layout = options_.shape.layout;
  if (layout.states.empty()) return;
  for (const auto& copy : step.state_copies) {
    const std::byte* from = options_.kv_memory + layout.slot_offset(copy.from.value);
    std::byte* to = options_.kv_memory + layout.slot_offset(copy.to.value);
    pool_->parallel_for(layout.states.block_bytes(), kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  }
}

kernels::CacheView Worker::cache_view() const {
  const auto& layout = options_.shape.layout;
  kernels::CacheView view{.blocks = options_.kv_memory,
                          .block_size = layout.blocks.block_size(),
                          .block_stride = layout.blocks.block_bytes(),
                          .entries = options_.shape.entries,
                          .entry_offsets = entry_offsets_,
                          .context = options_.context};
  if (options_.context.size > 1) view.context_blocks = options_.context_memory;
  if (layout.states.empty()) return view;
  view.states = options_.kv_memory + layout.slot_offset(0);
  view.slot_stride = layout.states.block_bytes();
  view.layer_stride = layout.states.entry_stride();
  view.head_stride = layout.states.entries().front().token_bytes;
  return view;
}

}  // namespace baton::engine
