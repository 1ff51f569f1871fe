#include "engine/make_engine.h"

#include "base/check.h"
#include "base/log.h"
#include "engine/cache_shape.h"
#include "engine/engine_config.h"
#include "engine/engine_impl.h"
#include "engine/kv_budget.h"
#include "engine/rank_cache.h"
#include "tensor/cpu.h"

namespace baton::engine {
namespace {

const SteadyClock kSteadyClock;

Result<KvCounts> size_cache(const EngineConfig& config, const models::Model& model, const kv::CacheLayout& layout) {
  return kv_counts({.kv_cache_bytes = config.kv_cache_bytes,
                    .state_cache_bytes = config.state_cache_bytes,
                    .memory_utilization = config.memory_utilization,
                    .available_bytes = tensor::available_memory_bytes(),
                    .weight_bytes = model.weight_bytes(),
                    .scratch_bytes = int64_t{4} * max_logit_rows(config) * model.vocab_size(),
                    .max_model_len = config.max_model_len,
                    .max_num_seqs = config.max_num_seqs,
                    .blocks = layout.blocks,
                    .states = layout.states});
}

// Connectors that push learn from the computing thread what there is to push.
std::function<void(int)> entries_listener(KvHost& host) {
  auto* const producer = host.producer();
  if (producer == nullptr || !producer->pushes()) return {};
  return [producer](int count) { producer->entries_ready(count); };
}

double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

void log_size(const EngineConfig& config, const kv::CacheLayout& layout) {
  const int64_t tokens = layout.block_count * config.block_size;
  log_info("GPU KV cache size: {} tokens ({} blocks of {}, {:.2f} GiB, {})", tokens, layout.block_count,
           config.block_size, gibibytes(config.kv_cache_bytes), config.kv_cache_dtype);
  log_info("Maximum concurrency for {} tokens per request: {:.2f}x", config.max_model_len,
           static_cast<double>(tokens) / config.max_model_len);
  if (layout.states.empty()) return;
  log_info("Recurrent state: {} slots of {} bytes ({:.2f} GiB)", layout.slot_count, layout.states.block_bytes(),
           gibibytes(config.state_cache_bytes));
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<models::Model> model,
                                            EngineDependencies dependencies) {
  BATON_CHECK(model != nullptr && dependencies.pool != nullptr);
  BATON_TRY_ASSIGN(config, resolve_config(std::move(config), *model));
  auto shape = cache_shape(config, *model);
  auto& layout = shape.layout;
  BATON_TRY_ASSIGN(const auto counts, size_cache(config, *model, layout));
  layout.block_count = counts.blocks;
  layout.slot_count = counts.slots;
  config.kv_cache_bytes = counts.blocks * layout.blocks.block_bytes();
  config.state_cache_bytes = counts.slots * layout.states.block_bytes();
  log_size(config, layout);

  std::unique_ptr<MetricRegistry> own_registry;
  if (dependencies.metrics == nullptr) own_registry = std::make_unique<MetricRegistry>();
  auto& registry = dependencies.metrics != nullptr ? *dependencies.metrics : *own_registry;
  const Clock& clock = dependencies.clock != nullptr ? *dependencies.clock : kSteadyClock;
  const int vocab_size = model->vocab_size();

  const auto make_core = [&](EngineCore::Hooks hooks,
                             transfer::WakeEngine wake) -> Result<std::unique_ptr<EngineCore>> {
    const auto& make_host = dependencies.make_kv_host ? dependencies.make_kv_host : make_private_kv_host;
    BATON_TRY_ASSIGN(auto host, make_host({.ranks = {rank_cache(shape, model->cache_needs(), {})},
                                           .model_fingerprint = model->fingerprint(),
                                           .wake = std::move(wake)}));
    BATON_TRY_ASSIGN(auto worker, Worker::create({.shape = shape,
                                                  .kv_memory = host->memory(0),
                                                  .max_rows = config.max_num_batched_tokens,
                                                  .max_logit_rows = max_logit_rows(config),
                                                  .hash_logits = config.hash_logits,
                                                  .on_entries = entries_listener(*host)},
                                                 *model, *dependencies.pool));
    return std::make_unique<EngineCore>(config, scheduler_options(config), counts, std::move(model), std::move(host),
                                        std::move(worker), EngineMetrics(registry, config, counts), clock,
                                        std::move(hooks));
  };
  BATON_TRY_ASSIGN(auto engine, EngineImpl::create(config, vocab_size, clock, std::move(own_registry), make_core));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace baton::engine
