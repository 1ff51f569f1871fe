// What one rank keeps, as whoever holds its memory and hands it over is told.
#pragma once

#include "engine/cache_shape.h"
#include "kv/cache_layout.h"
#include "models/model.h"
#include "parallel/grid.h"

namespace baton::engine {

// `shape` with its counts set, and `needs`, are of the rank that stands at `place`.
kv::RankCache rank_cache(const CacheShape& shape, const models::CacheNeeds& needs, const parallel::RankPlace& place);

}  // namespace baton::engine
