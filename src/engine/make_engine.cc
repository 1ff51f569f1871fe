#include "engine/make_engine.h"

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_config.h"
#include "engine/engine_impl.h"
#include "engine/kv_budget.h"
#include "tensor/cpu.h"

namespace baton::engine {
namespace {

const SteadyClock kSteadyClock;

Result<int64_t> size_cache(const EngineConfig& config, const models::Model& model, const kv::PagedGeometry& geometry) {
  return kv_block_count({.kv_cache_bytes = config.kv_cache_bytes,
                         .memory_utilization = config.memory_utilization,
                         .available_bytes = tensor::available_memory_bytes(),
                         .weight_bytes = model.weight_bytes(),
                         .scratch_bytes = int64_t{4} * max_logit_rows(config) * model.vocab_size(),
                         .max_model_len = config.max_model_len,
                         .max_num_seqs = config.max_num_seqs,
                         .geometry = geometry});
}

void log_size(const EngineConfig& config, const kv::PagedGeometry& geometry, int64_t block_count) {
  const int64_t tokens = block_count * config.block_size;
  log_info("GPU KV cache size: {} tokens ({} blocks of {}, {:.2f} GiB, {})", tokens, block_count, config.block_size,
           static_cast<double>(block_count * geometry.block_bytes()) / (1 << 30), config.kv_cache_dtype);
  log_info("Maximum concurrency for {} tokens per request: {:.2f}x", config.max_model_len,
           static_cast<double>(tokens) / config.max_model_len);
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(EngineConfig config, std::unique_ptr<models::Model> model,
                                            EngineDependencies dependencies) {
  BATON_CHECK(model != nullptr && dependencies.pool != nullptr);
  BATON_TRY_ASSIGN(config, resolve_config(std::move(config), *model));
  const auto geometry = cache_geometry(config, *model);
  BATON_TRY_ASSIGN(const int64_t block_count, size_cache(config, *model, geometry));
  config.kv_cache_bytes = block_count * geometry.block_bytes();
  log_size(config, geometry, block_count);

  std::unique_ptr<MetricRegistry> own_registry;
  if (dependencies.metrics == nullptr) own_registry = std::make_unique<MetricRegistry>();
  auto& registry = dependencies.metrics != nullptr ? *dependencies.metrics : *own_registry;
  const Clock& clock = dependencies.clock != nullptr ? *dependencies.clock : kSteadyClock;
  const int vocab_size = model->vocab_size();

  const auto make_core = [&](EngineCore::Hooks hooks,
                             transfer::WakeEngine wake) -> Result<std::unique_ptr<EngineCore>> {
    const auto& make_host = dependencies.make_kv_host ? dependencies.make_kv_host : make_private_kv_host;
    BATON_TRY_ASSIGN(auto host, make_host({.geometry = geometry,
                                           .block_count = block_count,
                                           .model_fingerprint = model->fingerprint(),
                                           .wake = std::move(wake)}));
    BATON_TRY_ASSIGN(auto worker, Worker::create({.geometry = geometry,
                                                  .kv_memory = host->memory(),
                                                  .max_rows = config.max_num_batched_tokens,
                                                  .max_logit_rows = max_logit_rows(config),
                                                  .hash_logits = config.hash_logits},
                                                 *model, *dependencies.pool));
    return std::make_unique<EngineCore>(config, scheduler_options(config), block_count, std::move(model),
                                        std::move(host), std::move(worker),
                                        EngineMetrics(registry, config, block_count), clock, std::move(hooks));
  };
  BATON_TRY_ASSIGN(auto engine, EngineImpl::create(config, vocab_size, clock, std::move(own_registry), make_core));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace baton::engine
