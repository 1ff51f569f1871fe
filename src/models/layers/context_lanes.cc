#include "models/layers/context_lanes.h"

namespace baton::models {

Result<ContextLanes> ContextLanes::allocate(parallel::Group group, const parallel::RankPlace& place, int64_t max_rows,
                                            int total_heads, int64_t query_width, int dim) {
  ContextLanes lanes;
  if (place.sizes.context_size() == 1) return lanes;
  lanes.total_heads_ = total_heads;
  lanes.query_width_ = query_width;
  lanes.dim_ = dim;
  lanes.group_ = place.group_heads(total_heads);
  const int64_t rows = std::min(max_rows, TeamStep::kFewRows);
  const auto query_bytes = static_cast<size_t>(rows * total_heads * query_width) * sizeof(float);
  BATON_TRY_ASSIGN(lanes.queries_, group.share(query_bytes));
  // Groups may have unequal numbers of heads: room for the largest in each.
  const int groups = place.context_groups();
  const int heads_max = (total_heads + groups - 1) / groups + 1;
  const auto floats = static_cast<int64_t>(kernels::lane_partials_bytes(rows, heads_max, dim) / sizeof(float)) + 16;
  const int64_t stride = floats / 16 * 16;
  BATON_TRY_ASSIGN(lanes.partials_, group.share(static_cast<size_t>(stride * groups) * sizeof(float)));
  lanes.partials_offset_ = place.context_group() * stride;
  return lanes;
}

}  // namespace baton::models
