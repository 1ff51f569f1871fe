#include "engine/make_engine.h"

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_config.h"
#include "engine/engine_impl.h"
#include "engine/ranks/local_executor.h"
#include "engine/ranks/rank_memory.h"

namespace baton::engine {
namespace {

const SteadyClock kSteadyClock;

double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

void log_size(const EngineConfig& config, KvCounts counts, CacheBytes bytes, const parallel::GridSizes& sizes) {
  const int64_t tokens = counts.blocks * block_tokens(config, sizes);
  log_info("GPU KV cache size: {} tokens ({} blocks of {}, {:.2f} GiB, {})", tokens, counts.blocks,
           block_tokens(config, sizes), gibibytes(counts.blocks * bytes.block), config.kv_cache_dtype);
  log_info("Maximum concurrency for {} tokens per request: {:.2f}x", config.max_model_len,
           static_cast<double>(tokens) / config.max_model_len);
  if (bytes.slot == 0) return;
  log_info("Recurrent state: {} slots of {} bytes ({:.2f} GiB)", counts.slots, bytes.slot,
           gibibytes(counts.slots * bytes.slot));
}

void log_ranks(const RankSet& ranks, const std::vector<CacheShape>& shapes) {
  if (ranks.sizes().replica_size() == 1) return;
  log_info("grid={:?} ranks_here={} threads_per_rank={} context_ranks={}", ranks.sizes().text(), ranks.size(),
           ranks.options().threads_per_rank, ranks.sizes().context_size());
  for (int i = 0; i < ranks.size(); ++i) {
    const auto& layout = shapes[static_cast<size_t>(i)].layout;
    log_info("rank={:?} weights_mb={:.1f} kv_entries={} kv_mb={:.1f} state_layers={} state_mb={:.1f} context_rank={}",
             ranks.rank(i).place.text(), static_cast<double>(ranks.rank(i).model->weight_bytes()) / 1e6,
             layout.blocks.entry_count(), static_cast<double>(layout.block_count * layout.blocks.block_bytes()) / 1e6,
             layout.states.entry_count(), static_cast<double>(layout.slot_count * layout.states.block_bytes()) / 1e6,
             ranks.rank(i).place.context_rank());
  }
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<models::Model> model,
                                            EngineDependencies dependencies) {
  BATON_CHECK(model != nullptr && dependencies.pool != nullptr);
  auto ranks = RankSet::of_one(std::move(model), *dependencies.pool);
  return make_engine(std::move(config), std::move(ranks), std::move(dependencies));
}

Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<RankSet> ranks,
                                            EngineDependencies dependencies) {
  const auto sizes = ranks->sizes();
  BATON_TRY_ASSIGN(config, resolve_config(std::move(config), ranks->model()));
  auto shapes = rank_shapes(config, *ranks);
  BATON_TRY_ASSIGN(const auto counts, size_rank_caches(config, *ranks, shapes));
  set_counts(shapes, counts);
  const auto bytes = cache_bytes(shapes);
  config.kv_cache_bytes = counts.blocks * bytes.block;
  config.state_cache_bytes = counts.slots * bytes.slot;
  log_size(config, counts, bytes, sizes);
  log_ranks(*ranks, shapes);

  std::unique_ptr<MetricRegistry> own_registry;
  if (dependencies.metrics == nullptr) own_registry = std::make_unique<MetricRegistry>();
  auto& registry = dependencies.metrics != nullptr ? *dependencies.metrics : *own_registry;
  const Clock& clock = dependencies.clock != nullptr ? *dependencies.clock : kSteadyClock;
  const int vocab_size = ranks->model().vocab_size();

  const auto make_core = [&](EngineCore::Hooks hooks,
                             transfer::WakeEngine wake) -> Result<std::unique_ptr<EngineCore>> {
    EngineParts parts;
    const auto& make_host = dependencies.make_kv_host ? dependencies.make_kv_host : make_private_kv_host;
    BATON_TRY_ASSIGN(parts.host, make_host(host_request(*ranks, shapes, 1, wake)));
    BATON_TRY(make_workers(config, shapes, *parts.host, *ranks));
    BATON_TRY_ASSIGN(auto pipeline, LocalPipeline::create(*ranks, {.slots = 1,
                                                                   .max_rows = config.max_num_batched_tokens,
                                                                   .max_logit_rows = max_logit_rows(config)}));
    parts.executor = std::make_unique<LocalExecutor>(std::move(pipeline));
    parts.ranks = std::move(ranks);
    if (dependencies.make_replica_group) parts.replicas = dependencies.make_replica_group(wake);
    return std::make_unique<EngineCore>(
        config, scheduler_options(config),
        EngineCore::Cache{.counts = counts, .block_tokens = block_tokens(config, sizes)}, std::move(parts),
        EngineMetrics(registry, config, counts), RankMetrics(registry, sizes, config.block_size), clock,
        std::move(hooks));
  };
  BATON_TRY_ASSIGN(auto engine, EngineImpl::create(config, vocab_size, clock, std::move(own_registry), make_core));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace baton::engine
