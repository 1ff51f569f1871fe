// Attention over a context that is spread over ranks, for few rows: the ranks of a context group see each other's
// queries and leave their lanes to each other (kernels/lane_partials.h). Many rows are attended to whole instead: each
// rank reads all positions, from whichever memory holds them, for its own heads. The bits are the same.
#pragma once

#include <memory>

#include "kernels/lane_partials.h"
#include "models/layers/team.h"
#include "tensor/buffer.h"

namespace baton::models {

class ContextLanes {
 public:
  ContextLanes() = default;
  // total_heads: of the layer; query_width: floats of a head's query; dim: of its output. Nothing is held where the
  // context is one rank's. The same call on each rank of the team.
  static Result<ContextLanes> allocate(parallel::Group group, const parallel::RankPlace& place, int64_t max_rows,
                                       int total_heads, int64_t query_width, int dim);
  // Whether a step goes this way: the same on all ranks.
  bool serves(const TeamStep& team) const { return queries_ != nullptr && team.few(); }

  // [rows, total heads, query width] of the team: each rank writes its heads' queries.
  float* queries() { return queries_->as<float>(); }
  int64_t query_stride() const { return total_heads_ * query_width_; }
  // Of the heads of the rank's context group: the first one's query, the heads, their lanes.
  const float* group_queries() { return queries() + group_.begin * query_width_; }
  parallel::Share group_heads() const { return group_; }
  kernels::LanePartials partials() {
    return {.data = partials_->as<float>() + partials_offset_, .heads = static_cast<int>(group_.count()), .dim = dim_};
  }

 private:
  int64_t total_heads_ = 0, query_width_ = 0, partials_offset_ = 0;
  int dim_ = 0;
  parallel::Share group_;
  std::shared_ptr<tensor::Buffer> queries_, partials_;
};

}  // namespace baton::models
