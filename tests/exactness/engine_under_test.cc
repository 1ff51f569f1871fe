#include "engine_under_test.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>

#include "apps/serve/handoff_host.h"
#include "base/check.h"
#include "base/hash.h"
#include "engine/make_engine.h"
#include "models/model.h"
#include "tensor/cpu.h"

namespace baton::exactness {
namespace {

// Collects outputs from the engine's thread until `expected` requests have ended.
class Collector {
 public:
  void take(engine::RequestOutput&& output) {
    std::lock_guard lock(mutex_);
    Trace& trace = traces_[output.id];
    if (output.seed != 0) trace.seed = output.seed;
    trace.cached_tokens += output.cached_tokens;
    trace.external_tokens += output.external_tokens;
    for (const auto& token : output.tokens) {
      trace.tokens.push_back(token.token);
      trace.logits_hashes.push_back(token.logits_hash);
    }
    if (output.error) trace.error = output.error->to_string();
    if (output.kv_transfer) trace.kv_transfer = std::move(output.kv_transfer);
    if (output.finish) {
      ++finished_;
      changed_.notify_all();
    }
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ >= count; });
  }
  void refuse(const std::string& id, const Status& status) {
    std::lock_guard lock(mutex_);
    traces_[id].error = status.to_string();
    ++finished_;
  }
  Traces take_all() {
    std::lock_guard lock(mutex_);
    return std::move(traces_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Traces traces_;
  size_t finished_ = 0;
};

void submit(engine::Engine& engine, const engine::EngineRequest& request, Collector& collector) {
  auto submitted =
      engine.submit(request, [&collector](engine::RequestOutput&& output) { collector.take(std::move(output)); });
  if (!submitted) collector.refuse(request.id, submitted.error());
}

}  // namespace

Result<EngineUnderTest> start_engine(const EngineSetup& setup) {
  EngineUnderTest made;
  made.metrics = std::make_unique<MetricRegistry>();
  const bool one_rank = setup.sizes.replica_size() == 1;
  BATON_TRY_ASSIGN(auto ranks, engine::RankSet::load({.sizes = setup.sizes,
                                                      .stages = {0, setup.sizes.pp},
                                                      .layer_partition = {},
                                                      .threads_per_rank = setup.threads,
                                                      .spin_us = one_rank ? 50 : 0,
                                                      .enter = {}},
                                                     [&](const models::RankSetup& rank, ComputePool& pool) {
                                                       return models::load_model(setup.model_path,
                                                                                 {.isa = tensor::detect_isa(),
                                                                                  .allow_onednn = setup.allow_onednn,
                                                                                  .rank = rank},
                                                                                 pool);
                                                     }));
  engine::EngineConfig config = setup.config;
  config.hash_logits = true;
  config.max_model_len = std::min(config.max_model_len, ranks->model().max_positions());
  engine::EngineDependencies dependencies{.metrics = made.metrics.get()};
  if (config.kv_transfer.role != engine::KvRole::kNone) {
    dependencies.make_kv_host = apps::handoff_host_factory(
        {.config = config.kv_transfer, .profile = {.isa = "test", .kernel_revision = 1, .onednn_version = ""}});
  }
  BATON_TRY_ASSIGN(made.engine, engine::make_engine(config, std::move(ranks), std::move(dependencies)));
  return made;
}

Traces run_together(engine::Engine& engine, const std::vector<engine::EngineRequest>& requests) {
  Collector collector;
  for (const auto& request : requests) submit(engine, request, collector);
  collector.wait_for(requests.size());
  return collector.take_all();
}

Traces run_one_by_one(engine::Engine& engine, const std::vector<engine::EngineRequest>& requests) {
  Collector collector;
  for (size_t i = 0; i < requests.size(); ++i) {
    submit(engine, requests[i], collector);
    collector.wait_for(i + 1);
  }
  return collector.take_all();
}

double mean_prompt_nll(engine::Engine& engine, const engine::EngineRequest& request) {
  std::promise<double> mean;
  double sum = 0;
  size_t count = 0;
  auto submitted = engine.submit(request, [&](engine::RequestOutput&& output) {
    for (const auto& position : output.prompt_logprobs) {
      sum -= position.front().logprob;
      ++count;
    }
    if (output.finish) mean.set_value(sum / static_cast<double>(count));
  });
  BATON_CHECK(submitted.has_value(), "{}", submitted.error().to_string());
  return mean.get_future().get();
}

uint64_t combined_hash(const Traces& traces) {
  Xxh3Stream state;
  for (const auto& [id, trace] : traces) {
    state.update(std::as_bytes(std::span(id)));
    state.update(std::as_bytes(std::span(trace.tokens)));
    state.update(std::as_bytes(std::span(trace.logits_hashes)));
  }
  return state.digest();
}

}  // namespace baton::exactness
