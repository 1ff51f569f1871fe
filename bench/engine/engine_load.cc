#include "engine_load.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <vector>

#include "base/check.h"
#include "engine/data_parallel_engine.h"
#include "engine/make_engine.h"
#include "models/model.h"
#include "tensor/cpu.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

Result<std::unique_ptr<engine::Engine>> start_replica(const EngineSetup& setup) {
  const int threads = setup.threads * setup.sizes.replica_size() * setup.sizes.dp;
  auto sizes = setup.sizes;
  sizes.dp = 1;
  BATON_TRY_ASSIGN(
      auto ranks, engine::RankSet::load({.sizes = sizes,
                                         .stages = {0, sizes.pp},
                                         .layer_partition = {},
                                         .threads_per_rank = setup.threads,
                                         .spin_us = threads <= tensor::usable_cores() ? 50 : 0,
                                         .enter = {}},
                                        [&](const models::RankSetup& rank, ComputePool& pool) {
                                          return models::load_model(
                                              setup.model_path,
                                              {.isa = tensor::detect_isa(), .max_positions = 8192, .rank = rank}, pool);
                                        }));
  engine::EngineConfig config{.max_num_batched_tokens = setup.max_num_batched_tokens,
                              .block_size = sizes.context_size() > 1 ? sizes.interleave : 16,
                              .kv_cache_bytes = int64_t{3} << 30,
                              .prefix_caching = false};
  config.max_model_len = std::min(8192, ranks->model().max_positions());
  return engine::make_engine(config, std::move(ranks), {});
}

// When each request gave its tokens.
class Watch {
 public:
  explicit Watch(int requests) : counts_(static_cast<size_t>(requests)) {}

  void take(int request, engine::RequestOutput&& output) {
    BATON_CHECK(!output.error, "{}", output.error->to_string());
    const auto now = Clock::now();
    std::lock_guard lock(mutex_);
    int& count = counts_[static_cast<size_t>(request)];
    if (count == 0 && !output.tokens.empty() && ++started_ == counts_.size()) {
      all_started_ = now;
      before_ = tokens_;
    }
    count += static_cast<int>(output.tokens.size());
    tokens_ += static_cast<int64_t>(output.tokens.size());
    if (!output.finish) return;
    if (finished_++ == 0) {
      first_finished_ = now;
      until_ = tokens_;
    }
    if (finished_ == counts_.size()) changed_.notify_all();
  }

  Rates wait(Clock::time_point began, int64_t prompt_tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ == counts_.size(); });
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    const double decoding = seconds(first_finished_ - all_started_);
    return {.prefill = static_cast<double>(prompt_tokens) / seconds(all_started_ - began),
            .decode = decoding > 0 ? static_cast<double>(until_ - before_) / decoding : 0};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> counts_;
  size_t started_ = 0, finished_ = 0;
  int64_t tokens_ = 0, before_ = 0, until_ = 0;
  Clock::time_point all_started_, first_finished_;
};

}  // namespace

Result<std::unique_ptr<engine::Engine>> start_engine(const EngineSetup& setup) {
  if (setup.sizes.dp == 1) return start_replica(setup);
  std::vector<std::unique_ptr<engine::Engine>> replicas;
  for (int i = 0; i < setup.sizes.dp; ++i) {
    BATON_TRY_ASSIGN(auto replica, start_replica(setup));
    replicas.push_back(std::move(replica));
  }
  return std::make_unique<engine::DataParallelEngine>(std::move(replicas));
}

Rates measure(engine::Engine& engine, int requests, int prompt, int output, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<engine::EngineRequest> made(static_cast<size_t>(requests));
  for (int r = 0; r < requests; ++r) {
    auto& request = made[static_cast<size_t>(r)];
    request.id = std::to_string(seed) + "-" + std::to_string(r);
    for (int i = 0; i < prompt; ++i) {
      request.prompt_ids.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(engine.vocab_size())));
    }
    request.sampling = {.temperature = 0, .ignore_eos = true, .max_tokens = output};
  }
  Watch watch(requests);
  const auto began = Clock::now();
  for (int r = 0; r < requests; ++r) {
    const auto submitted = engine.submit(made[static_cast<size_t>(r)],
                                         [&watch, r](engine::RequestOutput&& part) { watch.take(r, std::move(part)); });
    BATON_CHECK(submitted.has_value(), "{}", submitted.error().to_string());
  }
  return watch.wait(began, int64_t{requests} * prompt);
}

}  // namespace baton::bench
