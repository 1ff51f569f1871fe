#include "engine/ranks/rank_memory.h"

#include <utility>

#include "base/log.h"
#include "engine/engine_config.h"
#include "engine/rank_cache.h"
#include "tensor/cpu.h"

namespace baton::engine {
namespace {

Result<void> check_parts(const RankSet& ranks) {
  for (int i = 0; i < ranks.size() && ranks.sizes().replica_size() > 1; ++i) {
    const auto needs = ranks.rank(i).model->cache_needs();
    if (needs.parts.size() == needs.paged.size()) continue;
    return fail(Code::kUnimplemented,
                "this model can't be spread over ranks: it doesn't say which part of it each has");
  }
  return {};
}

}  // namespace

int block_tokens(const EngineConfig& config, const parallel::GridSizes& sizes) {
  return config.block_size * sizes.context_size();
}

std::vector<CacheShape> rank_shapes(const EngineConfig& config, const RankSet& ranks) {
  std::vector<CacheShape> shapes;
  for (int i = 0; i < ranks.size(); ++i) shapes.push_back(cache_shape(config, *ranks.rank(i).model));
  return shapes;
}

CacheBytes cache_bytes(const std::vector<CacheShape>& shapes) {
  CacheBytes bytes;
  for (const auto& shape : shapes) {
    bytes.block += shape.layout.blocks.block_bytes();
    bytes.slot += shape.layout.states.block_bytes();
  }
  return bytes;
}

Result<KvCounts> size_rank_caches(const EngineConfig& config, const RankSet& ranks,
                                  const std::vector<CacheShape>& shapes) {
  BATON_TRY(check_parts(ranks));
  const auto bytes = cache_bytes(shapes);
  const int64_t logits =
      ranks.holds_last_stage() ? int64_t{4} * max_logit_rows(config) * ranks.model().vocab_size() : 0;
  return kv_counts({.kv_cache_bytes = config.kv_cache_bytes,
                    .state_cache_bytes = config.state_cache_bytes,
                    .memory_utilization = config.memory_utilization,
                    .available_bytes = tensor::available_memory_bytes(),
                    .weight_bytes = ranks.weight_bytes(),
                    .scratch_bytes = logits,
                    .max_model_len = config.max_model_len,
                    .max_num_seqs = config.max_num_seqs,
                    .block_tokens = block_tokens(config, ranks.sizes()),
                    .block_bytes = bytes.block,
                    .slot_bytes = bytes.slot});
}

void set_counts(std::vector<CacheShape>& shapes, KvCounts counts) {
  for (auto& shape : shapes) {
    shape.layout.block_count = counts.blocks;
    shape.layout.slot_count = counts.slots;
  }
}

KvHostRequest host_request(const RankSet& ranks, const std::vector<CacheShape>& shapes, int process_count,
                           transfer::WakeEngine wake) {
  KvHostRequest request{.ranks = {},
                        .context_size = ranks.sizes().context_size(),
                        .process_count = process_count,
                        .model_fingerprint = ranks.model().fingerprint(),
                        .wake = std::move(wake)};
  for (int i = 0; i < ranks.size(); ++i) {
    const auto& rank = ranks.rank(i);
    request.ranks.push_back(rank_cache(shapes[static_cast<size_t>(i)], rank.model->cache_needs(), rank.place));
  }
  return request;
}

namespace {

// Connectors that push learn from the computing threads what there is to push.
std::function<void(uint64_t, int)> entries_listener(KvHost& host, int rank) {
  auto* const producer = host.producer();
  if (producer == nullptr || !producer->pushes()) return {};
  return [producer, rank](uint64_t step, int count) { producer->entries_ready(rank, step, count); };
}

}  // namespace

Result<void> make_workers(const EngineConfig& config, const std::vector<CacheShape>& shapes, KvHost& host,
                          RankSet& ranks) {
  const int context = ranks.sizes().context_size();
  std::vector<std::byte*> memory;
  for (int i = 0; i < ranks.size(); ++i) memory.push_back(host.memory(i));
  return ranks.on_every_rank([&](Rank& rank) -> Result<void> {
    const auto index = static_cast<size_t>(&rank - &ranks.rank(0));
    const size_t team_begin = index - static_cast<size_t>(rank.place.team_rank);
    WorkerOptions options{.shape = shapes[index],
                          .kv_memory = memory[index],
                          .context = {.size = context, .rank = rank.place.context_rank()},
                          .context_memory = {},
                          .max_rows = config.max_num_batched_tokens,
                          .max_logit_rows = max_logit_rows(config),
                          .on_entries = entries_listener(host, static_cast<int>(index))};
    for (int c = 0; c < context; ++c) {
      options.context_memory.push_back(memory[team_begin + static_cast<size_t>(rank.place.context_peer(c))]);
    }
    BATON_TRY_ASSIGN(auto worker, Worker::create(std::move(options), *rank.model, *rank.pool));
    rank.worker = std::make_unique<Worker>(std::move(worker));
    return {};
  });
}

// A step for each stage; replicas that step together have one under way.
int steps_under_way(const parallel::GridSizes& sizes) { return sizes.dp > 1 && sizes.expert_parallel ? 1 : sizes.pp; }

PipelineOptions pipeline_options(const EngineConfig& config, const RankSet& ranks) {
  return {.slots = steps_under_way(ranks.sizes()),
          .max_rows = config.max_num_batched_tokens,
          .max_logit_rows = max_logit_rows(config)};
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

}  // namespace baton::engine
