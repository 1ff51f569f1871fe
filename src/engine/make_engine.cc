#include "engine/make_engine.h"

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_config.h"
#include "engine/engine_impl.h"
#include "engine/ranks/leader_executor.h"
#include "engine/ranks/local_executor.h"
#include "engine/ranks/lockstep.h"
#include "engine/ranks/member.h"
#include "engine/ranks/member_offers.h"
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

// Whoever fetches what this engine offers asks every process of it.
Result<void> introduce_members(transfer::KvProducer& producer, const std::vector<std::string>& words) {
  std::vector<wire::HandoffAddress> addresses;
  for (size_t member = 1; member < words.size(); ++member) {
    if (words[member].empty()) {
      return fail(Code::kMismatch, "member {} has no --kv-transfer-config of a producer: give all members the same",
                  member);
    }
    BATON_TRY_ASSIGN(auto address, decode_address(words[member]));
    addresses.push_back(std::move(address));
  }
  producer.set_members(std::move(addresses));
  return {};
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
  BATON_TRY_ASSIGN(auto counts, size_rank_caches(config, *ranks, shapes));
  auto* const members = dependencies.members;
  if (members != nullptr) {
    BATON_TRY_ASSIGN(counts, agree_on_counts(*members, config, *ranks, counts));
  }
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
    BATON_TRY_ASSIGN(parts.host, make_host(host_request(*ranks, shapes, members ? members->size() : 1, wake)));
    BATON_TRY(make_workers(config, shapes, *parts.host, *ranks));
    BATON_TRY_ASSIGN(auto pipeline, LocalPipeline::create(*ranks, pipeline_options(config, *ranks)));
    parts.ranks = std::move(ranks);
    if (dependencies.replicas != nullptr) parts.replicas = std::make_unique<Lockstep>(*dependencies.replicas, wake);
    if (members == nullptr) {
      parts.executor = std::make_unique<LocalExecutor>(std::move(pipeline));
    } else {
      parts.executor = std::make_unique<LeaderExecutor>(*members, std::move(pipeline), vocab_size, wake);
      if (auto* producer = parts.host->producer()) {
        parts.producer = std::make_unique<LeaderProducer>(*members, *producer);
      }
      BATON_TRY_ASSIGN(const auto words, say_ready(*members));
      if (parts.producer) BATON_TRY(introduce_members(*parts.host->producer(), words));
    }
    auto scheduling = scheduler_options(config);
    scheduling.depth = parts.executor->depth();
    return std::make_unique<EngineCore>(
        config, std::move(scheduling), EngineCore::Cache{.counts = counts, .block_tokens = block_tokens(config, sizes)},
        std::move(parts), EngineMetrics(registry, config, counts),
        RankMetrics(registry, sizes, config.block_size, counts.blocks), clock, std::move(hooks));
  };
  BATON_TRY_ASSIGN(auto engine, EngineImpl::create(config, vocab_size, clock, std::move(own_registry), make_core));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace baton::engine
