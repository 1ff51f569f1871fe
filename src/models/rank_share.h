// What a rank of a grid holds of a model. Checked once, at load.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "parallel/grid.h"

namespace baton::models {

class RankShare {
 public:
  RankShare() = default;
  // kInvalidArgument with the rule that excludes the grid, or when the group is not the team that the place names.
  // where: what the message opens with.
  static Result<RankShare> make(const RankSetup& setup, const parallel::GridLimits& limits, const std::string& where);

  const parallel::RankPlace& place() const { return place_; }
  const parallel::Group& group() const { return group_; }
  parallel::Share layers() const { return layers_; }  // of its stage
  bool first_stage() const { return place_.first_stage(); }
  bool last_stage() const { return place_.last_stage(); }
  // Of a matrix's outputs, and of a dimension that all ranks read whole.
  parallel::Share columns(int64_t total) const;
  parallel::Share heads(int64_t total) const { return place_.heads(total); }
  parallel::Share experts(int64_t total) const { return place_.experts(total); }
  // Whether the experts lie on the ranks of several replicas, and who exchanges with them: null on ranks but the first.
  bool spans_replicas() const { return place_.sizes.expert_parallel && place_.sizes.dp > 1; }
  ReplicaExchange* replicas() const { return replicas_; }

 private:
  parallel::RankPlace place_;
  parallel::Group group_;
  parallel::Share layers_;
  ReplicaExchange* replicas_ = nullptr;
};

}  // namespace baton::models
