// What the ranks of a process keep, and how much of it fits.
#pragma once

#include <vector>

#include "engine/cache_shape.h"
#include "engine/kv_budget.h"
#include "engine/kv_host.h"
#include "engine/ranks/local_pipeline.h"
#include "engine/ranks/rank_set.h"

namespace baton::engine {

// Of each rank, in order. Of a resolved configuration; counts are not set.
std::vector<CacheShape> rank_shapes(const EngineConfig& config, const RankSet& ranks);

// What the ranks of this process have room for together. Errors name the flag.
Result<KvCounts> size_rank_caches(const EngineConfig& config, const RankSet& ranks,
                                  const std::vector<CacheShape>& shapes);
void set_counts(std::vector<CacheShape>& shapes, KvCounts counts);

// Bytes of all ranks of this process.
struct CacheBytes {
  int64_t block = 0;  // of one block number
  int64_t slot = 0;
};
CacheBytes cache_bytes(const std::vector<CacheShape>& shapes);

// What the host is asked for. `shapes` have their counts.
KvHostRequest host_request(const RankSet& ranks, const std::vector<CacheShape>& shapes, int process_count,
                           transfer::WakeEngine wake);

// Gives every rank its worker, over the host's memory.
Result<void> make_workers(const EngineConfig& config, const std::vector<CacheShape>& shapes, KvHost& host,
                          RankSet& ranks);

// Steps that the stages of an engine work on at a time.
int steps_under_way(const parallel::GridSizes& sizes);
// Slots and rows of the pipeline of each process.
PipelineOptions pipeline_options(const EngineConfig& config, const RankSet& ranks);

// What each rank of this process holds, where there are several.
void log_ranks(const RankSet& ranks, const std::vector<CacheShape>& shapes);

// Tokens that a block number stands for: those of its blocks on all context ranks.
int block_tokens(const EngineConfig& config, const parallel::GridSizes& sizes);

}  // namespace baton::engine
