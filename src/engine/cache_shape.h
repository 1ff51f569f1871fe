// What a model's cache looks like in memory: its needs and the configured dtypes, as kernels see them and as an arena.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "kernels/kv_view.h"
#include "kv/cache_layout.h"
#include "models/model.h"

namespace baton::engine {

struct CacheShape {
  std::vector<kernels::PagedEntry> entries;  // the model's, with their dtypes
  kv::CacheLayout layout;                    // entry i of a block is entries[i]; counts are not set yet
};

// Sets "auto" in kv_cache_dtype and indexer_cache_dtype. kInvalidArgument names the flag, the entry and the choices.
Result<void> resolve_cache_dtypes(EngineConfig& config, const models::Model& model);
// Of a resolved configuration.
CacheShape cache_shape(const EngineConfig& config, const models::Model& model);

}  // namespace baton::engine
