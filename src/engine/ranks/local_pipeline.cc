#include "engine/ranks/local_pipeline.h"

#include <immintrin.h>

#include <chrono>
#include <utility>

#include "base/check.h"

namespace baton::engine {

Result<std::unique_ptr<LocalPipeline>> LocalPipeline::create(RankSet& ranks, const PipelineOptions& options) {
  std::unique_ptr<LocalPipeline> made(new LocalPipeline(ranks, options));
  for (int slot = 0; slot < options.slots; ++slot) {
    BATON_TRY(made->allocate(*made->jobs_.emplace_back(std::make_unique<Job>())));
  }
  return made;
}

Result<void> LocalPipeline::allocate(Job& job) {
  const auto buffer = [](int64_t floats, const char* what) -> Result<tensor::Buffer> {
    auto made = tensor::Buffer::allocate(static_cast<size_t>(floats) * 4);
    if (!made) return fail(made.error().with_context(what));
    return made;
  };
  const int stages = ranks_.stage_count();
  for (int stage = 0; stage <= stages; ++stage) {
    const auto& model = *ranks_.rank(std::min(stage, stages - 1), 0).model;
    const int64_t floats =
        stage < stages ? model.stage_in_floats(options_.max_rows) : model.stage_out_floats(options_.max_rows);
    BATON_TRY_ASSIGN(auto between, buffer(floats, "rows between stages"));
    job.between.push_back(std::move(between));
  }
  if (!ranks_.holds_last_stage()) return {};
  BATON_TRY_ASSIGN(job.logits,
                   buffer(int64_t{options_.max_logit_rows} * ranks_.model().vocab_size(), "logits of a step"));
  return {};
}

LocalPipeline::~LocalPipeline() {
  while (under_way() > 0) (void)take();
}

RankStep& LocalPipeline::next_step() {
  BATON_CHECK(under_way() < slots());
  return job(started_).step;
}

std::span<float> LocalPipeline::next_input(int64_t rows) {
  return {job(started_).between.front().as<float>(), static_cast<size_t>(ranks_.model().stage_in_floats(rows))};
}

void LocalPipeline::start(OnDone on_done) {
  auto& next = job(started_++);
  next.on_done = std::move(on_done);
  next.ranks_left.store(ranks_.size());
  next.last_stage_left.store(ranks_.team_size());
  run_stage(next, 0);
}

// The caller's rank last: it computes before this returns.
void LocalPipeline::run_stage(Job& job, int stage) {
  for (int team_rank = ranks_.team_size() - 1; team_rank >= 0; --team_rank) {
    auto& rank = ranks_.rank(stage, team_rank);
    ranks_.post(rank, [this, &job, stage, &rank] { run_rank(job, stage, rank); });
  }
}

// Passes the step on also where a rank has failed, so that take() finds an end; nothing is computed then.
void LocalPipeline::run_rank(Job& job, int stage, Rank& rank) {
  ranks_.guard(rank, [&] { compute(job, stage, rank); });
  const bool last_stage = stage + 1 == ranks_.stage_count();
  if (!last_stage && rank.place.team_rank == 0) run_stage(job, stage + 1);
  if (last_stage && job.last_stage_left.fetch_sub(1) == 1 && job.on_done && ranks_.well()) {
    ranks_.guard(rank, [&] { job.on_done(output(job)); });
  }
  // The last to leave may see the job's slot taken again at once: nothing of it may be touched after.
  std::lock_guard lock(mutex_);
  if (job.ranks_left.fetch_sub(1) == 1) done_.notify_all();
}

void LocalPipeline::compute(Job& job, int stage, Rank& rank) {
  if (!ranks_.well()) return;
  const auto at = static_cast<size_t>(stage);
  rank.worker->execute(job.step, {.stage_in = rank.place.first_stage() ? nullptr : job.between[at].as<float>(),
                                  .stage_out = rank.place.last_stage() ? nullptr : job.between[at + 1].as<float>(),
                                  .logits = rank.place.last_stage() ? job.logits.as<float>() : nullptr});
}

Result<LocalPipeline::Output> LocalPipeline::take() {
  BATON_CHECK(under_way() > 0);
  auto& oldest = job(taken_++);
  wait(oldest);
  BATON_TRY(ranks_.health());
  return output(oldest);
}

void LocalPipeline::wait(const Job& job) {
  const auto over = [&] { return job.ranks_left.load() == 0; };
  if (const int spin_us = ranks_.options().spin_us; spin_us > 0) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
    while (!over() && std::chrono::steady_clock::now() < end) _mm_pause();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, over);
}

LocalPipeline::Output LocalPipeline::output(Job& job) {
  Output made{.step = &job.step, .stage_out = {}};
  if (ranks_.holds_last_stage()) {
    made.logits = job.logits.as<float>();
    return made;
  }
  const auto& model = *ranks_.rank(ranks_.stage_count() - 1, 0).model;
  made.stage_out = {job.between.back().as<float>(), static_cast<size_t>(model.stage_out_floats(job.step.rows()))};
  return made;
}

}  // namespace baton::engine
